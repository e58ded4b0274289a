package check

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

const composeDir = "../../compose"

// compose loads the compose file against Compose's schema.
func compose(t *testing.T, text []byte, env types.Mapping) (*types.Project, error) {
	t.Helper()
	details := types.ConfigDetails{WorkingDir: composeDir, Environment: env,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(composeDir, "compose.yaml"), Content: text}}}
	return loader.LoadWithContext(t.Context(), details)
}

func TestCompose_TheFileIsWhatComposeReads(t *testing.T) {
	text := read(t, composeDir, "compose.yaml")
	for _, missing := range []string{"APP_IMAGE", "PUBLISH_KEY"} {
		env := types.Mapping{"APP_IMAGE": "app:1", "PUBLISH_KEY": "key"}
		delete(env, missing)
		if _, err := compose(t, text, env); err == nil {
			t.Errorf("without %s it is not refused", missing)
		}
	}
	env := types.Mapping{"APP_IMAGE": "app:1", "PUBLISH_KEY": "key"}
	project, err := compose(t, text, env)
	if err != nil {
		t.Fatal(err)
	}
	holdfast, app := project.Services["holdfast"], project.Services["app"]
	if len(project.Services) != 2 || len(app.Ports) > 0 || len(holdfast.Ports) != 1 || holdfast.Ports[0].Target != 8080 {
		t.Errorf("want Holdfast's port and no other: %v", project.Services)
	}
	// The order in which they are stopped is that of depends_on, the other way round.
	if !slices.Equal(holdfast.GetDependencies(), []string{"app"}) || len(app.GetDependencies()) > 0 {
		t.Errorf("Holdfast depends on %v, the app on %v", holdfast.GetDependencies(), app.GetDependencies())
	}
	if key := holdfast.Environment["PUBLISH_KEY"]; key == nil || *key != "key" || app.Environment["HOLDFAST_PUBLISH_KEY"] == nil || *app.Environment["HOLDFAST_PUBLISH_KEY"] != *key {
		t.Errorf("both sides need the key: %v %v", holdfast.Environment, app.Environment)
	}
	if !holdfast.ReadOnly || !slices.Equal(holdfast.CapDrop, []string{"ALL"}) {
		t.Error("Holdfast may write to its root, or has capabilities")
	}
	if _, err := compose(t, append(text, "unknown: {}\n"...), env); err == nil {
		t.Error("a key that Compose does not have is not refused")
	}
}
