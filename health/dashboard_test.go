package health

import (
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
)

var (
	styleText  = regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	scriptText = regexp.MustCompile(`(?s)<script type="module">(.*?)</script>`)
	handler    = regexp.MustCompile(`(?i)<[^>]+\son[a-z]+=|<[^>]+\sstyle=`)
	address    = regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]+`)
)

// The one script and the one style of the page are named by what they hold: no other runs.
func TestDashboard_ThePolicyNamesWhatThePageHas(t *testing.T) {
	page := Dashboard()
	html := string(page.HTML)
	for directive, part := range map[string]*regexp.Regexp{"style-src": styleText, "script-src": scriptText} {
		found := part.FindAllStringSubmatch(html, -1)
		if len(found) != 1 || len(found[0][1]) < 1000 {
			t.Fatalf("%s: %d are there", directive, len(found))
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		want := directive + " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"
		if !strings.Contains(page.Policy, want) {
			t.Errorf("the policy is %s, want %s", page.Policy, want)
		}
	}
	if strings.Contains(page.Policy, "unsafe") || strings.Contains(page.Policy, "*") {
		t.Errorf("the policy is %s", page.Policy)
	}
}

func TestDashboard_IsOneFileThatTakesNothingForHTML(t *testing.T) {
	html := string(Dashboard().HTML)
	for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "import(", "import ", "/* script */", "/* style */"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if found := handler.FindString(scriptText.ReplaceAllString(html, "")); found != "" {
		t.Errorf("the page has %s", found)
	}
	for _, found := range address.FindAllString(html, -1) {
		if found != "http://www.w3.org" { // the name of SVG, which nobody asks for
			t.Errorf("the page names %s", found)
		}
	}
	if name := Dashboard().Name; len(name) != 12 {
		t.Errorf("its name is %q", name)
	}
}
