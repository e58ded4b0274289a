// Package docs is the documentation that the binary carries with it.
package docs

import _ "embed"

// Troubleshoot is the page with a section for each reason and each end of a
// hold, in Markdown.
//
//go:embed troubleshoot.md
var Troubleshoot string
