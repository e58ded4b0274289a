package main

import "strings"

// nearest is the known word that text was probably meant to be, or "": at most a third of it mistyped, or one the other's beginning.
func nearest(text string, known []string) string {
	low := strings.ToLower(text)
	best, found := max(1, len(text)/3)+1, ""
	for _, word := range known {
		if d := editDistance(low, strings.ToLower(word)); d < min(best, longestWord) {
			best, found = d, word
		}
	}
	if found != "" {
		return found
	}
	for _, word := range known {
		if min(len(low), len(word)) > 3 && (strings.HasPrefix(low, word) || strings.HasPrefix(word, low)) {
			return word // "warning" for warn
		}
	}
	return ""
}

// longestWord is longer than any of ours.
const longestWord = 64

// editDistance counts the letters inserted, left out, replaced or swapped with their neighbour.
func editDistance(a, b string) int {
	if len(a) > longestWord || len(b) > longestWord {
		return longestWord
	}
	var rows [longestWord + 1][longestWord + 1]int
	for i := range len(a) + 1 {
		for j := range len(b) + 1 {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], 1+rows[i-2][j-2])
			}
		}
	}
	return rows[len(a)][len(b)]
}

// meant is the hint about a name that nothing defines: the nearest one, else all there are.
func meant(text string, known []string) string {
	if near := nearest(text, known); near != "" {
		return "nearest: " + quote(near)
	}
	if len(known) == 0 {
		return "none is defined"
	}
	return "known here: " + strings.Join(known, ", ")
}
