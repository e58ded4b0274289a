package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The buses of examples/ are started here as the manifests say, and Holdfast is
// given them as its pod would be. That the manifests fit each other is held to
// in examples/kubernetes/check.

// podEnv has a component's variables for the sidecar, and the secret that they are of.
func podEnv(t *testing.T, component string) (env []string, secret map[string]string) {
	t.Helper()
	var s struct {
		StringData map[string]string `yaml:"stringData"`
	}
	readExample(t, "kubernetes/"+component+"/secret.yaml", &s)
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					InitContainers []struct {
						Env []struct {
							Name, Value string
							ValueFrom   struct {
								SecretKeyRef struct{ Key string } `yaml:"secretKeyRef"`
							} `yaml:"valueFrom"`
						}
					} `yaml:"initContainers"`
				}
			}
		}
	}
	readExample(t, "kubernetes/"+component+"/deployment.yaml", &deployment)
	for _, variable := range deployment.Spec.Template.Spec.InitContainers[0].Env {
		value := variable.Value
		if key := variable.ValueFrom.SecretKeyRef.Key; key != "" {
			value = s.StringData[key]
		}
		for _, before := range env { // as the kubelet does
			name, is, _ := strings.Cut(before, "=")
			value = strings.ReplaceAll(value, "$("+name+")", is)
		}
		env = append(env, variable.Name+"="+value)
	}
	return env, s.StringData
}

// onlyContainer is the one container of a manifest of a component.
func onlyContainer(t *testing.T, file string) (command, args []string) {
	t.Helper()
	var manifest struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct{ Command, Args []string }
				}
			}
		}
	}
	readExample(t, "kubernetes/"+file, &manifest)
	if c := manifest.Spec.Template.Spec.Containers; len(c) == 1 {
		return c[0].Command, c[0].Args
	}
	t.Fatalf("%s has not one container", file)
	return nil, nil
}

// startEngine runs a server until the test is over.
func startEngine(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	log := new(syncBuffer)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(unix.SIGINT)
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", cmd.Path, log)
		}
	})
}

// wantBusFound: the doctor reaches the bus of a configuration in examples/.
func wantBusFound(t *testing.T, config string, env []string, bus string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(onPorts0(config)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := builtCommand(t, append(env, "PUBLISH_KEY=a-key", "BUS="+bus), "doctor", "-c", path, "--json").Output()
	var e examination
	if decodeErr := json.Unmarshal(out, &e); err != nil || decodeErr != nil {
		t.Fatalf("%v, %v: %s", err, decodeErr, out)
	}
	i := slices.IndexFunc(e.Checks, func(c check) bool { return c.Name == "bus" })
	if i < 0 || !strings.Contains(e.Checks[i].Found, " log holdfast answers in ") { // however long that takes here
		t.Errorf("%+v", e.Checks)
	}
}

var passwordOption = regexp.MustCompile(`^\$(\(REDISCLI_AUTH\)|\{REDIS_PASSWORD\})$`)

// redisServer is a Redis on this machine, started with the options that a manifest gives it.
func redisServer(t *testing.T, options []string, password string) (address string) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip(err)
	}
	address = freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	options = slices.Clone(options)
	for i, option := range options {
		switch {
		case passwordOption.MatchString(option):
			options[i] = password
		case option == "/data":
			options[i] = t.TempDir()
		}
	}
	cmd := exec.Command("redis-server", append(options, "--bind", "127.0.0.1", "--port", port)...)
	cmd.Dir, cmd.SysProcAttr = t.TempDir(), new(syscall.SysProcAttr)
	startEngine(t, cmd)
	eventuallyListens(t, address)
	return address
}

func TestExamples_HoldfastIsServedByTheRedisOfTheComponent(t *testing.T) {
	t.Parallel()
	env, secret := podEnv(t, "bus-redis")
	command, args := onlyContainer(t, "bus-redis/redis.yaml")
	if len(command) != 1 || command[0] != "redis-server" {
		t.Fatalf("started is %q", command)
	}
	address := redisServer(t, args, secret["password"])
	url := replaced(t, strings.TrimPrefix(env[len(env)-1], "BUS="), "app-bus:6379", address)
	wantBusFound(t, podConfig(t), env[:len(env)-1], url)
}

func TestExamples_HoldfastIsServedByTheRedisOfTheComposeFile(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct{ Command []string }
	}
	readExample(t, "compose/compose.redis.yaml", &compose)
	command := compose.Services["redis"].Command
	if len(command) < 2 || command[0] != "redis-server" {
		t.Fatalf("started is %q", command)
	}
	address := redisServer(t, command[1:], "a-secret")
	wantBusFound(t, exampleConfigs(t)["compose/config.yaml"], nil, "redis://:a-secret@"+address)
}

// postgresServer is a PostgreSQL on this machine. It gives the address, and how its
// superuser runs SQL in a database.
func postgresServer(t *testing.T) (address string, run func(database, sql string)) {
	t.Helper()
	programs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	who, err := user.Lookup("postgres")
	if os.Getuid() != 0 || len(programs) == 0 || err != nil {
		t.Skip("a PostgreSQL of its own needs root, the user postgres and Debian's package: ", err)
	}
	bin := programs[len(programs)-1]
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	dir, err := os.MkdirTemp("/tmp", "holdfast-examples-postgres") // not below t.TempDir, which is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	as := func(program string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, program), args...)
		cmd.Dir, cmd.Env = dir, []string{"LANG=C.UTF-8", "PATH=" + os.Getenv("PATH")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := as("initdb", "-D", data, "-U", "postgres", "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	address = freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	startEngine(t, as("postgres", "-D", data, "-k", dir, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"))
	try := func(database, sql string) ([]byte, error) {
		return as("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", dir, "-p", port, "-U", "postgres", "-d", database, "-c", sql).CombinedOutput()
	}
	eventually(t, "PostgreSQL to answer", func() bool { _, err := try("postgres", "SELECT 1"); return err == nil })
	return address, func(database, sql string) {
		t.Helper()
		if out, err := try(database, sql); err != nil {
			t.Fatalf("%s: %v %s", sql, err, out)
		}
	}
}

var shownSQL = regexp.MustCompile(`(?m)^#   ([A-Z][^\n]+;)$`)

// What the secret says a role needs is enough for the job, and for Holdfast.
func TestExamples_TheJobPreparesTheDatabaseWithTheRightsThatTheSecretNames(t *testing.T) {
	t.Parallel()
	env, secret := podEnv(t, "bus-postgres")
	_, args := onlyContainer(t, "bus-postgres/job.yaml")
	address, run := postgresServer(t)
	run("postgres", "CREATE DATABASE shop")
	statements := shownSQL.FindAllStringSubmatch(readFile(t, filepath.Join(examplesDir, "kubernetes/bus-postgres/secret.yaml")), -1)
	if len(statements) != 2 {
		t.Fatalf("the secret shows %q", statements)
	}
	for _, statement := range statements {
		run("postgres", strings.ReplaceAll(statement[1], "…", "change-it"))
	}
	url := replaced(t, secret["url"], "@db:5432/", "@"+address+"/", "sslmode=require", "sslmode=disable")
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(BUS)", url)
	}
	for _, want := range []string{"made; keeps 10m0s and 100000 entries", "was there, version 1, and is up to date; keeps what it kept"} { // twice: each deployment runs it
		out, err := builtCommand(t, nil, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), " schema holdfast "+want) {
			t.Errorf("%q: %v %s", args, err, out)
		}
	}
	wantBusFound(t, podConfig(t), env[:len(env)-1], url)
	wantBusFound(t, exampleConfigs(t)["compose/config.yaml"], nil, url)
}

// The rest of what the compose files say of the bus: the URLs are those that Holdfast takes.
func TestExamples_TheBusesOfTheExamplesAreURLs(t *testing.T) {
	t.Parallel()
	urls := map[string]string{}
	for _, component := range []string{"bus-redis", "bus-postgres"} {
		env, _ := podEnv(t, component)
		urls[component] = strings.TrimPrefix(env[len(env)-1], "BUS=")
	}
	for _, name := range []string{"compose.redis.yaml", "compose.postgres.yaml"} {
		text := readFile(t, filepath.Join(examplesDir, "compose", name))
		for i, found := range regexp.MustCompile(`BUS: (\S+://[^$]*)\$\{\w+(?::\?[^}]*)?\}(\S+)`).FindAllStringSubmatch(text, -1) {
			urls[fmt.Sprint(name, " ", i)] = found[1] + "secret" + found[2]
		}
	}
	if len(urls) != 6 {
		t.Errorf("found are %q", urls)
	}
	for where, url := range urls {
		c, err := loadText(t, replaced(t, exampleConfigs(t)["systemd/config.yaml"], "\ndrain:", "\nbus: \""+url+"\"\ndrain:"))
		if err != nil || c.Bus.Ready != "start" {
			t.Errorf("%s: %v", where, err)
		}
	}
}
