package check

import (
	"cmp"
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
	if _, err := compose(t, append(slices.Clone(text), "unknown: {}\n"...), composeEnv()); err == nil {
		t.Error("a key that Compose does not have is not refused")
	}
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
}

// composeEnv has what the compose files ask for.
func composeEnv() types.Mapping {
	return types.Mapping{"APP_IMAGE": "app:1", "PUBLISH_KEY": "key", "REDIS_PASSWORD": "secret", "POSTGRES_PASSWORD": "secret"}
}

// composeWith loads the compose file and one over it.
func composeWith(t *testing.T, file string, env types.Mapping) (*types.Project, error) {
	t.Helper()
	details := types.ConfigDetails{WorkingDir: composeDir, Environment: env}
	for _, name := range []string{"compose.yaml", file} {
		details.ConfigFiles = append(details.ConfigFiles, types.ConfigFile{Filename: filepath.Join(composeDir, name), Content: read(t, composeDir, name)})
	}
	return loader.LoadWithContext(t.Context(), details)
}

// variable is what a service has in its environment.
func variable(s types.ServiceConfig, name string) string {
	if value := s.Environment[name]; value != nil {
		return *value
	}
	return ""
}

// wantTwoReplicas: two of the app and of Holdfast, each with an address of its own, on one bus.
func wantTwoReplicas(t *testing.T, p *types.Project, bus string) {
	t.Helper()
	for _, replica := range []struct{ holdfast, app, port string }{{"holdfast", "app", "8080"}, {"holdfast-2", "app-2", "8081"}} {
		h, app := p.Services[replica.holdfast], p.Services[replica.app]
		if len(h.Ports) != 1 || h.Ports[0].Published != replica.port || h.Ports[0].Target != 8080 || len(app.Ports) > 0 {
			t.Errorf("%s: ports %v, its app's %v", replica.holdfast, h.Ports, app.Ports)
		}
		if target := cmp.Or(variable(h, "APP"), "app"); target != replica.app || variable(h, "BUS") != bus {
			t.Errorf("%s stands before %s, on %s", replica.holdfast, target, variable(h, "BUS"))
		}
		if url := variable(app, "HOLDFAST_PUBLISH_URL"); url != "http://"+replica.holdfast+":5561" || variable(app, "HOLDFAST_PUBLISH_KEY") != variable(h, "PUBLISH_KEY") || variable(h, "PUBLISH_KEY") == "" {
			t.Errorf("%s publishes to %s", replica.app, url)
		}
		if of := h.GetDependencies(); !slices.Contains(of, replica.app) || slices.Contains(of, "app") != (replica.app == "app") {
			t.Errorf("%s depends on %v", replica.holdfast, of)
		}
		if !h.ReadOnly || !slices.Equal(h.CapDrop, []string{"ALL"}) || h.StopGracePeriod == nil || *h.StopGracePeriod != *p.Services["holdfast"].StopGracePeriod {
			t.Errorf("%s is not as the first: %+v", replica.holdfast, h)
		}
	}
}

func TestCompose_WithRedisTwoReplicasShareOneThatForgetsNothing(t *testing.T) {
	env := composeEnv()
	delete(env, "REDIS_PASSWORD")
	if _, err := composeWith(t, "compose.redis.yaml", env); err == nil {
		t.Error("without a password it is not refused")
	}
	p, err := composeWith(t, "compose.redis.yaml", composeEnv())
	if err != nil {
		t.Fatal(err)
	}
	wantTwoReplicas(t, p, "redis://:secret@redis:6379")
	redis := p.Services["redis"]
	if want := []string{"redis-server", "--appendonly", "yes", "--maxmemory", "256mb", "--maxmemory-policy", "noeviction", "--requirepass", "secret"}; !slices.Equal(redis.Command, want) {
		t.Errorf("Redis is started as %q", redis.Command)
	}
	if len(p.Services) != 5 || len(redis.Ports) > 0 || len(redis.Volumes) != 1 || redis.Volumes[0].Target != "/data" || variable(redis, "REDISCLI_AUTH") != "secret" {
		t.Errorf("%d services, and Redis %+v", len(p.Services), redis)
	}
	for _, name := range []string{"holdfast", "holdfast-2"} {
		if h := p.Services[name]; !slices.Contains(h.GetDependencies(), "redis") {
			t.Errorf("%s is not stopped before Redis", name)
		}
	}
}

func TestCompose_WithPostgresTheSchemaIsMadeBeforeTwoReplicasStart(t *testing.T) {
	env := composeEnv()
	delete(env, "POSTGRES_PASSWORD")
	if _, err := composeWith(t, "compose.postgres.yaml", env); err == nil {
		t.Error("without a password it is not refused")
	}
	p, err := composeWith(t, "compose.postgres.yaml", composeEnv())
	if err != nil {
		t.Fatal(err)
	}
	url := "postgres://app:secret@db/app?sslmode=disable"
	wantTwoReplicas(t, p, url)
	init, db := p.Services["bus-init"], p.Services["db"]
	if !slices.Equal(init.Command, []string{"bus", "init", "--url", url}) || init.Image != p.Services["holdfast"].Image || len(init.Entrypoint) > 0 || init.Restart != "on-failure" {
		t.Errorf("the schema is made by %+v", init)
	}
	if init.DependsOn["db"].Condition != types.ServiceConditionHealthy || db.HealthCheck == nil {
		t.Errorf("it waits for %+v", init.DependsOn)
	}
	if len(p.Services) != 6 || len(db.Ports) > 0 || variable(db, "POSTGRES_USER") != "app" || variable(db, "POSTGRES_DB") != "app" || variable(db, "POSTGRES_PASSWORD") != "secret" {
		t.Errorf("%d services, and the database %+v", len(p.Services), db)
	}
	for _, name := range []string{"holdfast", "holdfast-2"} {
		if on := p.Services[name].DependsOn["bus-init"]; on.Condition != types.ServiceConditionCompletedSuccessfully {
			t.Errorf("%s waits for %+v", name, on)
		}
	}
	for _, name := range []string{"app", "app-2"} {
		if app := p.Services[name]; !slices.Contains(app.GetDependencies(), "db") || variable(app, "DATABASE_URL") == "" {
			t.Errorf("%s: %v", name, app.GetDependencies())
		}
	}
}
