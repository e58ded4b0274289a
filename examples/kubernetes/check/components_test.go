package check

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// The components give the pods a bus: each is a line of the kustomization that
// is a comment as it stands.

// built is what the kustomization makes with a component, by kind and name.
type built map[string]any

func buildWith(t *testing.T, component string, replacements ...string) built {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "kubernetes")
	if err := os.CopyFS(dir, manifestsOnly{os.DirFS(manifests)}); err != nil {
		t.Fatal(err)
	}
	path, line := filepath.Join(dir, "kustomization.yaml"), "components: ["+component+"]\n"
	text := string(read(t, path))
	if strings.Count(text, "\n# "+line) != 1 {
		t.Fatalf("the kustomization has no comment %q", line)
	}
	text = strings.NewReplacer(append(replacements, "\n# "+line, "\n"+line)...).Replace(text)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	b := built{}
	for part := range bytes.SplitSeq(all, []byte("\n---\n")) {
		kind, object, err := decode(part)
		if err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		var named struct{ Metadata struct{ Name string } }
		if err := yaml.Unmarshal(part, &named); err != nil {
			t.Fatal(err)
		}
		b[kind+" "+named.Metadata.Name] = object
	}
	return b
}

// manifestsOnly leaves out what is no manifest: this module.
type manifestsOnly struct{ fs.FS }

func (m manifestsOnly) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(m.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "check" }), err
}

func (b built) deployment() *appsv1.Deployment {
	return b["apps/v1 Deployment app"].(*appsv1.Deployment)
}

func (b built) sidecar() *corev1.Container {
	return &b.deployment().Spec.Template.Spec.InitContainers[0]
}

func (b built) secret() *corev1.Secret { return b["v1 Secret app-bus"].(*corev1.Secret) }

// expanded is a text with the variables of its container in it, as the kubelet
// fills them in: those that stand before.
func (b built) expanded(t *testing.T, container *corev1.Container, before int, text string) string {
	t.Helper()
	return regexp.MustCompile(`\$\((\w+)\)`).ReplaceAllStringFunc(text, func(reference string) string {
		for i, variable := range container.Env[:before] {
			if "$("+variable.Name+")" == reference {
				return b.value(t, container, i)
			}
		}
		t.Fatalf("%s: no variable before it is %s in %q", container.Name, reference, text)
		return ""
	})
}

// value is what a container has in a variable.
func (b built) value(t *testing.T, container *corev1.Container, i int) string {
	t.Helper()
	variable := container.Env[i]
	if variable.ValueFrom == nil {
		return b.expanded(t, container, i, variable.Value)
	}
	from := variable.ValueFrom.SecretKeyRef
	if from == nil || from.Name != b.secret().Name || b.secret().StringData[from.Key] == "" {
		t.Fatalf("%s: %s is of no secret that is there: %+v", container.Name, variable.Name, variable.ValueFrom)
	}
	return b.secret().StringData[from.Key]
}

// variable is what a container has in a variable of that name.
func (b built) variable(t *testing.T, container *corev1.Container, name string) string {
	t.Helper()
	i := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("%s has no %s", container.Name, name)
	}
	return b.value(t, container, i)
}

// wantSameBut: a component changes of the deployment what it has to, and the rest stays.
func (b built) wantSameBut(t *testing.T) {
	t.Helper()
	got, want := b.deployment().DeepCopy(), load(t).deployment
	if n := got.Spec.Replicas; n == nil || *n < 2 {
		t.Errorf("replicas: %v, want several", n)
	}
	got.Spec.Replicas, got.Spec.Template.Spec.InitContainers[0].Env = want.Spec.Replicas, load(t).sidecar().Env
	is, _ := yaml.Marshal(got)
	should, _ := yaml.Marshal(want)
	if !bytes.Equal(is, should) {
		t.Errorf("the deployment is\n%s\nand without the component\n%s", is, should)
	}
	for _, variable := range load(t).sidecar().Env {
		if !slices.Contains(b.sidecar().Env, variable) {
			t.Errorf("the sidecar lost its %s", variable.Name)
		}
	}
}

func (b built) wantKinds(t *testing.T, added ...string) {
	t.Helper()
	want := append([]string{"apps/v1 Deployment app", "networking.k8s.io/v1 NetworkPolicy app", "v1 ConfigMap app-holdfast", "v1 Service app"}, added...)
	if got := slices.Sorted(maps.Keys(b)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("built are %q", got)
	}
}

func TestComponents_BusRedisIsOneThatForgetsNothingAndIsReachedByTheSidecarsAlone(t *testing.T) {
	b := buildWith(t, "bus-redis")
	b.wantKinds(t, "v1 Secret app-bus", "v1 Service app-bus", "apps/v1 StatefulSet app-bus", "networking.k8s.io/v1 NetworkPolicy app-bus")
	b.wantSameBut(t)
	set, service := b["apps/v1 StatefulSet app-bus"].(*appsv1.StatefulSet), b["v1 Service app-bus"].(*corev1.Service)
	policy := b["networking.k8s.io/v1 NetworkPolicy app-bus"].(*networkingv1.NetworkPolicy)
	pod := &set.Spec.Template.Spec
	wantRestricted(t, pod)
	redis := &pod.Containers[0]

	// The password of the URL is the one that Redis asks for; its host and port are the Service's, and that leads to Redis.
	args := b.expanded(t, redis, len(redis.Env), strings.Join(redis.Args, "\n"))
	port := service.Spec.Ports[0].Port
	if url, want := b.variable(t, b.sidecar(), "BUS"), "redis://:"+b.secret().StringData["password"]+"@"+service.Name+":6379"; url != want || port != 6379 {
		t.Errorf("the bus is %s, want %s; the Service's port is %d", url, want, port)
	}
	for _, want := range []string{"--requirepass\n" + b.secret().StringData["password"], "--appendonly\nyes", "--maxmemory-policy\nnoeviction", "--dir\n/data"} {
		if !strings.Contains(args+"\n", want+"\n") {
			t.Errorf("Redis is not told %q", want)
		}
	}
	labels := set.Spec.Template.Labels
	for name, selector := range map[string]map[string]string{"StatefulSet": set.Spec.Selector.MatchLabels, "Service": service.Spec.Selector, "NetworkPolicy": policy.Spec.PodSelector.MatchLabels} {
		if len(selector) == 0 || !maps.Equal(selector, labels) {
			t.Errorf("the %s selects %v, the pod has %v", name, selector, labels)
		}
	}
	if set.Spec.ServiceName != service.Name || service.Spec.ClusterIP != corev1.ClusterIPNone || service.Spec.Ports[0].TargetPort.IntVal != redis.Ports[0].ContainerPort {
		t.Errorf("the Service %+v is not the StatefulSet's", service.Spec)
	}
	if len(policy.Spec.Ingress) != 1 || len(policy.Spec.Ingress[0].From) != 1 || len(policy.Spec.Ingress[0].Ports) != 1 {
		t.Fatalf("want one way in, got %+v", policy.Spec.Ingress)
	}
	from, to := policy.Spec.Ingress[0].From[0], policy.Spec.Ingress[0].Ports[0]
	if from.NamespaceSelector != nil || from.PodSelector == nil || !maps.Equal(from.PodSelector.MatchLabels, b.deployment().Spec.Template.Labels) || to.Port.IntVal != redis.Ports[0].ContainerPort {
		t.Errorf("the policy lets %+v in to %+v", from, to)
	}

	// Its disk outlasts it, and it has the memory that it may take, and half as much again.
	claims := set.Spec.VolumeClaimTemplates
	if len(claims) != 1 || len(redis.VolumeMounts) != 1 || redis.VolumeMounts[0].Name != claims[0].Name || redis.VolumeMounts[0].MountPath != "/data" {
		t.Errorf("mounted is %+v of %+v", redis.VolumeMounts, claims)
	}
	if !strings.Contains(args, "--maxmemory\n256mb\n") || redis.Resources.Limits.Memory().Value() < 256<<20*3/2 {
		t.Errorf("%s, the container has %v", args, redis.Resources.Limits.Memory())
	}
	if redis.StartupProbe == nil || redis.ReadinessProbe == nil || redis.LivenessProbe == nil {
		t.Error("a probe is missing")
	}
}

func TestComponents_BusPostgresIsPreparedByAJobOfTheSameImage(t *testing.T) {
	b := buildWith(t, "bus-postgres")
	b.wantKinds(t, "v1 Secret app-bus", "batch/v1 Job app-bus-init")
	b.wantSameBut(t)
	job := b["batch/v1 Job app-bus-init"].(*batchv1.Job)
	pod := &job.Spec.Template.Spec
	wantRestricted(t, pod)
	init := &pod.Containers[0]
	url := b.secret().StringData["url"]
	if got := b.variable(t, b.sidecar(), "BUS"); got != url || !strings.HasPrefix(url, "postgres://") {
		t.Errorf("the sidecar's bus is %s", got)
	}
	// The image's entry point is holdfast.
	if args := b.expanded(t, init, len(init.Env), strings.Join(init.Args, " ")); args != "bus init --url "+url || len(init.Command) > 0 {
		t.Errorf("the job runs %q %q", init.Command, args)
	}
	other := buildWith(t, "bus-postgres", "newTag: dev", "newTag: other")
	if image := other["batch/v1 Job app-bus-init"].(*batchv1.Job).Spec.Template.Spec.Containers[0].Image; image != other.sidecar().Image || !strings.HasSuffix(image, ":other") {
		t.Errorf("with another image the job is of %s, the sidecar of %s", image, other.sidecar().Image)
	}
	if c := init.SecurityContext; init.Image != b.sidecar().Image || c.RunAsUser == nil || *c.RunAsUser != imageUser(t) || c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
		t.Errorf("the job is of %s, the sidecar of %s; %+v", init.Image, b.sidecar().Image, c)
	}
	if job.Spec.TTLSecondsAfterFinished == nil || pod.RestartPolicy != corev1.RestartPolicyOnFailure {
		t.Error("a job that is never gone is in the next one's way; one that is not tried again gives up before the database is there")
	}
}

// Both at once would be two secrets and two buses.
func TestComponents_NoneIsThereUnlessItIsAskedFor(t *testing.T) {
	text := string(read(t, manifests, "kustomization.yaml"))
	if regexp.MustCompile(`(?m)^components:`).MatchString(text) || strings.Count(text, "\n# components: [bus-") != 2 {
		t.Errorf("the kustomization:\n%s", text)
	}
	if env := load(t).sidecar().Env; len(env) != 1 {
		t.Errorf("the sidecar's variables are %v", env)
	}
}
