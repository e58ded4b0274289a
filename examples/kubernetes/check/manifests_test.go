// Package check holds the examples to the types and the readers of those that
// they are written for: the manifests to Kubernetes' API, the compose file to
// Compose's specification, the Dockerfile and .dockerignore to BuildKit's
// parser. Whether they fit Holdfast is held to in cmd/holdfast.
package check

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const manifests = ".."

// kinds are what the manifests may be, each with its type.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                 func() any { return new(appsv1.Deployment) },
	"v1 ConfigMap":                       func() any { return new(corev1.ConfigMap) },
	"v1 Service":                         func() any { return new(corev1.Service) },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return new(networkingv1.NetworkPolicy) },

	// Of the components alone.
	"v1 Secret":           func() any { return new(corev1.Secret) },
	"apps/v1 StatefulSet": func() any { return new(appsv1.StatefulSet) },
	"batch/v1 Job":        func() any { return new(batchv1.Job) },
}

// baseKinds are those of the manifests that stand beside the kustomization, one of each.
var baseKinds = []string{"apps/v1 Deployment", "networking.k8s.io/v1 NetworkPolicy", "v1 ConfigMap", "v1 Service"}

// decode reads one manifest into its type: a field that the type does not have,
// one that is there twice, and a value of another type are errors.
func decode(text []byte) (kind string, object any, err error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(text, &head); err != nil {
		return "", nil, err
	}
	kind = head.APIVersion + " " + head.Kind
	make := kinds[kind]
	if make == nil {
		return kind, nil, fmt.Errorf("%q is not a kind that is looked for here", kind)
	}
	object = make()
	return kind, object, yaml.UnmarshalStrict(text, object)
}

// decodeAll reads manifests that stand one after the other.
func decodeAll(t *testing.T, name string, text []byte) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		kind, object, err := decode(part)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if objects[kind] != nil {
			t.Errorf("%s: a second %s", name, kind)
		}
		objects[kind] = object
	}
	return objects
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// example is what the manifests say.
type example struct {
	config     *corev1.ConfigMap
	deployment *appsv1.Deployment
	service    *corev1.Service
	policy     *networkingv1.NetworkPolicy
}

func (e example) pod() *corev1.PodSpec { return &e.deployment.Spec.Template.Spec }

// sidecar is Holdfast's container.
func (e example) sidecar() *corev1.Container { return &e.pod().InitContainers[0] }

// files are the manifests as they stand, by their kind.
func files(t *testing.T) map[string]any {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil || len(paths) < 5 {
		t.Fatal(paths, err)
	}
	objects := map[string]any{}
	for _, path := range paths {
		if filepath.Base(path) != "kustomization.yaml" {
			maps.Copy(objects, decodeAll(t, path, read(t, path)))
		}
	}
	return objects
}

func load(t *testing.T) (e example) {
	t.Helper()
	objects := files(t)
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, baseKinds) {
		t.Fatalf("want one manifest of each kind, got %v", got)
	}
	e.config, e.deployment = objects["v1 ConfigMap"].(*corev1.ConfigMap), objects["apps/v1 Deployment"].(*appsv1.Deployment)
	e.service, e.policy = objects["v1 Service"].(*corev1.Service), objects["networking.k8s.io/v1 NetworkPolicy"].(*networkingv1.NetworkPolicy)
	if pod := e.pod(); len(pod.InitContainers) != 1 || len(pod.Containers) != 1 {
		t.Fatalf("want a sidecar and an app, got %d and %d", len(pod.InitContainers), len(pod.Containers))
	}
	return e
}

func TestManifests_AreOfTheTypesThatKubernetesReads(t *testing.T) { load(t) }

// What decode is worth.
func TestManifests_WhatTheTypesDoNotHaveIsRefused(t *testing.T) {
	whole := string(read(t, manifests, "deployment.yaml"))
	for name, change := range map[string][2]string{
		"a field that is not there":   {"terminationGracePeriodSeconds:", "terminationGraceSeconds:"},
		"a field in the wrong place":  {"      initContainers:\n", "      restartPolicies: Always\n      initContainers:\n"},
		"a field that is there twice": {"          startupProbe:\n", "          readinessProbe: {}\n          startupProbe:\n"},
		"a value of another type":     {"failureThreshold: 30", "failureThreshold: many"},
		"another version":             {"apiVersion: apps/v1\n", "apiVersion: apps/v2\n"},
	} {
		if strings.Count(whole, change[0]) != 1 {
			t.Fatalf("%s: %q is not there once", name, change[0])
		}
		if _, _, err := decode([]byte(strings.Replace(whole, change[0], change[1], 1))); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}

func TestKustomization_BuildsWhatTheFilesSay(t *testing.T) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), manifests)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	of := files(t)
	for kind, object := range decodeAll(t, "what is built", text) {
		got, _ := yaml.Marshal(object)
		want, _ := yaml.Marshal(of[kind])
		if !bytes.Equal(got, want) {
			t.Errorf("%s: built as\n%s\nstands as\n%s", kind, got, want)
		}
		delete(of, kind)
	}
	for kind := range of {
		t.Errorf("the kustomization leaves out the %s", kind)
	}
}

func TestDeployment_AnotherConfigurationMakesAnotherPod(t *testing.T) {
	e := load(t)
	sum := sha256.Sum256([]byte(e.config.Data["config.yaml"]))
	if got, want := e.deployment.Spec.Template.Annotations["checksum/config"], hex.EncodeToString(sum[:]); got != want {
		t.Errorf("checksum/config in deployment.yaml is %s; the configuration in configmap.yaml has %s: write that", got, want)
	}
	mounted := false
	for _, volume := range e.pod().Volumes {
		for _, mount := range e.sidecar().VolumeMounts {
			at := mount.MountPath + "/config.yaml"
			mounted = mounted || volume.ConfigMap != nil && volume.ConfigMap.Name == e.config.Name && mount.Name == volume.Name && mount.SubPath == "" &&
				slices.Contains(e.sidecar().Env, corev1.EnvVar{Name: "HOLDFAST_CONFIG", Value: at})
		}
	}
	if !mounted {
		t.Error("the ConfigMap is not where HOLDFAST_CONFIG says")
	}
}

func TestDeployment_HoldfastIsASidecarThatStartsBeforeTheAppAndBeginsTheDrain(t *testing.T) {
	sidecar, app := load(t).sidecar(), load(t).pod().Containers[0]
	if p := sidecar.RestartPolicy; p == nil || *p != corev1.ContainerRestartPolicyAlways {
		t.Error("without restartPolicy: Always it is a task that has to end before the app starts")
	}
	if p := sidecar.StartupProbe; p == nil || p.HTTPGet == nil {
		t.Error("without a startup probe the app is started while Holdfast may not listen yet")
	}
	if sidecar.LivenessProbe != nil {
		t.Error("what a liveness probe ends are all holds")
	}
	if l := sidecar.Lifecycle; l == nil || l.PreStop == nil || l.PreStop.Exec == nil || !slices.Equal(l.PreStop.Exec.Command, []string{"/holdfast", "drain", "--wait"}) {
		t.Errorf("the sidecar's hook: %+v", l)
	}
	if l := app.Lifecycle; l == nil || l.PreStop == nil || l.PreStop.Exec == nil || len(app.Ports) != 0 {
		t.Errorf("the app's hook and ports: %+v %v", l, app.Ports)
	}
}

// A sidecar's ports are found by their names only from Kubernetes 1.32 on.
func TestService_AndPolicyMeanTheSidecarsPortsByNumber(t *testing.T) {
	e := load(t)
	var ports, let []int32
	for _, port := range e.sidecar().Ports {
		ports = append(ports, port.ContainerPort)
	}
	if s := e.service.Spec.Ports; len(s) != 1 || s[0].TargetPort != intstr.FromInt32(ports[0]) {
		t.Errorf("the Service's ports are %+v, want the number %d", s, ports[0])
	}
	for _, rule := range e.policy.Spec.Ingress {
		for _, port := range rule.Ports {
			if len(rule.From) != 1 || rule.From[0].NamespaceSelector == nil || port.Port == nil || port.Port.Type != intstr.Int {
				t.Fatalf("the policy lets in %+v", rule)
			}
			let = append(let, port.Port.IntVal)
		}
	}
	if !slices.Equal(let, ports) || !slices.Equal(e.policy.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		t.Errorf("the policy lets in to %v, the sidecar has %v", let, ports)
	}
	labels := e.deployment.Spec.Template.Labels
	for name, selector := range map[string]map[string]string{"Deployment": e.deployment.Spec.Selector.MatchLabels, "Service": e.service.Spec.Selector, "NetworkPolicy": e.policy.Spec.PodSelector.MatchLabels} {
		if len(selector) == 0 || !maps.Equal(selector, labels) {
			t.Errorf("the %s selects %v, the pod has %v", name, selector, labels)
		}
	}
}

// Pod Security Standards, "restricted".
func TestDeployment_FitsTheRestrictedProfile(t *testing.T) {
	pod := load(t).pod()
	wantRestricted(t, pod)
	for _, volume := range pod.Volumes {
		if volume.ConfigMap == nil && volume.EmptyDir == nil {
			t.Errorf("the volume %s is neither a ConfigMap nor an emptyDir", volume.Name)
		}
	}
	if c := pod.InitContainers[0].SecurityContext; c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem || c.RunAsUser == nil || *c.RunAsUser != imageUser(t) {
		t.Errorf("the sidecar: %+v, want a root that cannot be written and the image's user", c)
	}
}

// wantRestricted: nothing of a pod may do more than it has to, and each container has its share of the node.
func wantRestricted(t *testing.T, pod *corev1.PodSpec) {
	t.Helper()
	if c := pod.SecurityContext; c == nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot || c.SeccompProfile == nil || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod: %+v", c)
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("the pod has what it does not need of its host, or the cluster's API")
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		c := container.SecurityContext
		if c == nil || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.Capabilities == nil || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 || c.Privileged != nil {
			t.Errorf("%s: %+v", container.Name, c)
		}
		if r := container.Resources; r.Requests.Cpu().IsZero() || r.Requests.Memory().IsZero() || r.Limits.Memory().IsZero() || r.Limits.Memory().Cmp(*r.Requests.Memory()) < 0 {
			t.Errorf("%s: resources %+v", container.Name, r)
		}
	}
}

// The pod that docs/kubernetes.md shows for the app as the sidecar.
func TestDocs_ThePodThatTheyShowIsOne(t *testing.T) {
	_, rest, _ := strings.Cut(string(read(t, root, "docs", "kubernetes.md")), "\n```yaml\n")
	text, _, found := strings.Cut(rest, "```")
	var pod corev1.PodSpec
	if err := yaml.UnmarshalStrict([]byte(text), &pod); err != nil || !found {
		t.Fatal(err, found)
	}
	if len(pod.InitContainers) != 1 || pod.InitContainers[0].Name != "app" || *pod.InitContainers[0].RestartPolicy != corev1.ContainerRestartPolicyAlways || len(pod.Containers) != 1 || pod.Containers[0].Name != "holdfast" {
		t.Errorf("%+v", pod)
	}
}
