package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// What examples/ and the Dockerfile say is held to here by Holdfast itself. That the manifests are Kubernetes' own, the
// compose file Compose's and the Dockerfile Docker's is held to by examples/kubernetes/check, a module of its own.

const examplesDir = "../../examples"

// examplePod is the part of the deployment that these tests look at.
type examplePod struct {
	Grace          int                `yaml:"terminationGracePeriodSeconds"`
	InitContainers []exampleContainer `yaml:"initContainers"`
	Containers     []exampleContainer `yaml:"containers"`
	Volumes        []struct {
		Name     string
		EmptyDir struct {
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
	}
}

type exampleContainer struct {
	Command        []string
	Env            []struct{ Name, Value string }
	StartupProbe   exampleProbe `yaml:"startupProbe"`
	ReadinessProbe exampleProbe `yaml:"readinessProbe"`
	Lifecycle      struct {
		PreStop struct{ Exec struct{ Command []string } } `yaml:"preStop"`
	}
	Resources    struct{ Limits struct{ Memory string } }
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type exampleProbe struct {
	HTTPGet struct {
		Path string
		Port int
	} `yaml:"httpGet"`
	Period  int `yaml:"periodSeconds"`
	Fails   int `yaml:"failureThreshold"`
	Timeout int `yaml:"timeoutSeconds"`
}

// hook is what a container runs when its pod's end begins.
func (c *exampleContainer) hook() []string { return c.Lifecycle.PreStop.Exec.Command }

// readExample decodes a file of examples/.
func readExample(t *testing.T, name string, to any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(examplesDir, name))), to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// readPod gives the pod of the deployment, and its containers.
func readPod(t *testing.T) (pod examplePod, holdfast, app *exampleContainer) {
	t.Helper()
	var deployment struct {
		Spec struct{ Template struct{ Spec examplePod } }
	}
	readExample(t, "kubernetes/deployment.yaml", &deployment)
	pod = deployment.Spec.Template.Spec
	if len(pod.InitContainers) != 1 || len(pod.Containers) != 1 {
		t.Fatalf("want one sidecar and one container, got %+v", pod)
	}
	return pod, &pod.InitContainers[0], &pod.Containers[0]
}

// podConfig is the configuration in the ConfigMap.
func podConfig(t *testing.T) string {
	t.Helper()
	var m struct{ Data map[string]string }
	readExample(t, "kubernetes/configmap.yaml", &m)
	if m.Data["config.yaml"] == "" {
		t.Fatal("the ConfigMap has no config.yaml")
	}
	return m.Data["config.yaml"]
}

// exampleConfigs are the configurations of examples/, by where they stand.
func exampleConfigs(t *testing.T) map[string]string {
	t.Helper()
	configs := map[string]string{"kubernetes/configmap.yaml": podConfig(t)}
	for _, dir := range []string{"compose", "systemd"} {
		name := dir + "/config.yaml"
		configs[name] = readFile(t, filepath.Join(examplesDir, name))
	}
	return configs
}

// loadExample loads a configuration of examples/ as it stands.
func loadExample(t *testing.T, text string) *fileConfig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := loadConfig(path, func(name string) (string, bool) {
		value, ok := map[string]string{"PUBLISH_KEY": "a-key"}[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// replaced replaces texts that must be there, once each.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if n := strings.Count(text, pairs[i]); n != 1 {
			t.Fatalf("%q stands %d times in\n%s", pairs[i], n, text)
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// builtCommand runs the built binary. Its only variables are those given, as
// in an image.
func builtCommand(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := builtBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), binary.Fd()), args...)
	cmd.Env = append([]string{}, env...)
	return cmd
}

// onPorts0 has a configuration ask for no port that others may have.
func onPorts0(text string) string {
	for _, port := range []string{"8080", "5561", "5562"} {
		text = strings.ReplaceAll(text, ":"+port+`"`, `:0"`)
	}
	for _, own := range []string{"publish", "admin"} {
		if !strings.Contains(text, "\n"+own+":") {
			text += own + `: {listen: "127.0.0.1:0"}` + "\n"
		}
	}
	return text
}

// The doctor's only doubts are that the app is not there, and whether this
// machine has what the limits promise.
func TestExamples_TheDoctorFindsNoFaultInAnyConfiguration(t *testing.T) {
	t.Parallel()
	for name, text := range exampleConfigs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(onPorts0(text)), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := builtCommand(t, []string{"PUBLISH_KEY=a-key"}, "doctor", "-c", path, "--json").Output()
			var e examination
			if decodeErr := json.Unmarshal(out, &e); err != nil || decodeErr != nil || e.Exit != exitOK || len(e.Checks) < 4 {
				t.Fatalf("%v, %v, exit %d: %s", err, decodeErr, e.Exit, out)
			}
			for _, c := range e.Checks {
				if c.Result != "ok" && !strings.HasPrefix(c.Name, "target ") && !strings.HasPrefix(c.Name, "limits.") && c.Name != "memory" {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// kubernetesBytes reads 64Mi and 2Gi.
func kubernetesBytes(t *testing.T, quantity string) int64 {
	t.Helper()
	for unit, size := range map[string]int64{"Mi": 1 << 20, "Gi": 1 << 30} {
		if number, ok := strings.CutSuffix(quantity, unit); ok {
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n * size
		}
	}
	t.Fatalf("no quantity of Mi or Gi: %q", quantity)
	return 0
}

// gunicornFlag is what a command of gunicorn says of a flag.
func gunicornFlag(t *testing.T, command []string, flag string) string {
	t.Helper()
	at := slices.Index(command, flag)
	if at < 0 || at+1 == len(command) {
		t.Fatalf("no %s in %q", flag, command)
	}
	return command[at+1]
}

// roomToStop is how long an app has to end once it is told to and its requests
// have been given up.
const roomToStop = 5

func TestExamples_ThePodsNumbersFitItsConfiguration(t *testing.T) {
	pod, holdfast, app := readPod(t)
	config := loadExample(t, podConfig(t))
	graceful, _ := strconv.Atoi(gunicornFlag(t, app.Command, "--graceful-timeout"))
	bound := int(time.Duration(config.Drain.Bound).Seconds())
	if need := bound + graceful + roomToStop; graceful < 1 || pod.Grace < need {
		t.Errorf("the grace period is %d s, drain.bound, the app's own and %d s are %d s", pod.Grace, roomToStop, need)
	}
	if config.Drain.Delay <= 0 {
		t.Error("without drain.delay a node that has not heard yet finds nobody")
	}
	if config.Upstreams["app"].StartTimeout != 0 {
		t.Error("start_timeout ends a sidecar whose app has not been started yet")
	}
	if target := config.Upstreams["app"].Targets; len(target) != 1 || target[0] != "http://"+gunicornFlag(t, app.Command, "-b") {
		t.Errorf("the target is %q, the app listens on %s", target, gunicornFlag(t, app.Command, "-b"))
	}
	if n := config.Upstreams["app"].Concurrency; gunicornFlag(t, app.Command, "-w") != "1" || n == nil || strconv.Itoa(*n) != gunicornFlag(t, app.Command, "--threads") {
		t.Errorf("concurrency does not fit %q", app.Command)
	}
	held, limit := int64(config.Limits.Memory)+int64(config.Holds.Journal.Bytes)+ownMemory, kubernetesBytes(t, holdfast.Resources.Limits.Memory)
	if limit < held*3/2 {
		t.Errorf("of %d bytes the collector keeps to %d: too little is left for the kernel's part", limit, held)
	}
	spools := 0
	for _, mount := range holdfast.VolumeMounts {
		for _, volume := range pod.Volumes {
			if mount.MountPath == config.Limits.Spool.Dir && mount.Name == volume.Name && kubernetesBytes(t, volume.EmptyDir.SizeLimit) > int64(config.Limits.Spool.Bytes) {
				spools++
			}
		}
	}
	if spools != 1 {
		t.Errorf("%d volumes have room for the spool, want 1", spools)
	}
}

func TestExamples_TheProbesAskWhatTheConfigurationAnswers(t *testing.T) {
	_, holdfast, _ := readPod(t)
	config := loadExample(t, podConfig(t))
	port := 0
	if len(config.Listen) == 1 {
		port, _ = strconv.Atoi(strings.TrimPrefix(config.Listen[0].Address, ":"))
	}
	start, ready := holdfast.StartupProbe, holdfast.ReadinessProbe
	if start.HTTPGet.Path != config.Health.Path || start.HTTPGet.Port != port {
		t.Errorf("the startup probe asks %+v, want %s on %d: the app is not started before it succeeds", start.HTTPGet, config.Health.Path, port)
	}
	if ready.HTTPGet.Path != config.Health.ReadyPath || ready.HTTPGet.Port != port || ready.Timeout < 2 {
		t.Errorf("the readiness probe: %+v, want %s on %d with more than the second that it may take", ready, config.Health.ReadyPath, port)
	}
	park := int(time.Duration(config.Upstreams["app"].Park).Seconds())
	if patience := (ready.Fails - 1) * ready.Period; patience < park {
		t.Errorf("the pod is taken from its Service after %d s, before those who wait for the app are refused (%d s)", patience, park)
	}
}

func TestExamples_ComposeAndSystemdWaitLongerThanADrain(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Grace string `yaml:"stop_grace_period"`
		}
	}
	readExample(t, "compose/compose.yaml", &compose)
	unit := readFile(t, filepath.Join(examplesDir, "systemd/holdfast.service"))
	_, stop, _ := strings.Cut(unit, "\nTimeoutStopSec=")
	stop, _, _ = strings.Cut(stop, "\n")
	for name, grace := range map[string]string{"compose/config.yaml": compose.Services["holdfast"].Grace, "systemd/config.yaml": stop} {
		bound := time.Duration(loadExample(t, exampleConfigs(t)[name]).Drain.Bound)
		if d, err := time.ParseDuration(grace); err != nil || d < bound+2*time.Second {
			t.Errorf("%s: a drain takes %v, what stops it waits %q (%v)", name, bound, grace, err)
		}
	}
}

func TestExamples_TheUnitsAreWhatSystemdTakes(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	dir := t.TempDir()
	for name, program := range map[string]string{"holdfast.service": "/usr/local/bin/holdfast ", "app.service": "/srv/app/venv/bin/gunicorn "} {
		// What is to run there need not be here.
		text := strings.ReplaceAll(readFile(t, filepath.Join(examplesDir, "systemd", name)), "="+program, "=/bin/true ")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"holdfast.service", "app.service"} {
		cmd := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(dir, name))
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
