package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/redact"
)

// planted is in each credential of these tests.
const planted = "PLANTED"

func TestCredentialsInATextAreRemoved(t *testing.T) {
	for name, text := range map[string]string{
		"a URL":                  "proxy http://user:PLANTED@proxy:3128 used",
		"a URL with a token":     "git clone https://PLANTED-token@github.com/a/b",
		"a variable":             "NGC_API_KEY=PLANTED-1",
		"a lower-case key":       `level=info db_password: "PLANTED with blanks" next=1`,
		"JSON":                   `{"user":"u","password":"PLANTED","n":1}`,
		"escaped JSON":           `{\"apiKey\":\"PLANTED\"}`,
		"Docker's configuration": `{"auths":{"nvcr.io":{"auth":"UExBTlRFRAPLANTED=="}}}`,
		"a flag":                 "run --token PLANTED --v 2",
		"a flag with =":          "run --client-secret=PLANTED",
		"a header":               "Authorization: Bearer PLANTED-abcdef",
		"a bearer":               "sent bearer PLANTEDabcdefgh",
		"a JSON Web Token":       "got eyJhbGciOiJIUzI1NiJ9.eyJQTEFOVEVEIjoxfQPLANTED.abcPLANTED",
		"NVIDIA's key":           "nvapi-PLANTED0123456789abcdef",
		"GitHub's token":         "ghp_PLANTED0123456789012345678",
		"a private key":          "x\n-----BEGIN RSA PRIVATE KEY-----\nPLANTED\n-----END RSA PRIVATE KEY-----\ny",
		"a cut private key":      "-----BEGIN PRIVATE KEY-----\nPLANTED\n",
		"a variable as JSON":     `{"env":[{"name":"NGC_API_KEY","value":"PLANTED"}]}`,
		"a query":                "GET /a?access_token=PLANTED&x=1",
		"a short name":           "REPO_PASS=PLANTED",
		"a key in base64":        "client-key-data: LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tPLANTED==",
		"a certificate's key":    "tls.key: PLANTED-key",
		"a cookie":               "Set-Cookie: session=PLANTED; Path=/",
		"separators in a value":  "PASSWORD=ab,cd&ef;PLANTED",
		"an escaped quote":       `{"password":"ab\"PLANTED"}`,
		"an escape":              `{"password":"ab\u0026PLANTED"}`,
		"an @ in a password":     "http://user:p@PLANTED@host:1/",
		"a short flag":           "mysql -u root -p PLANTED-1",
		"a short flag with =":    "cli -p=PLANTED-1 next",
		"a quoted short flag":    `sh -c "cli -p 'PLANTED-1'"`,
		"a short flag in JSON":   `{"name":"CMD","value":"-u me -p PLANTED"}`,
		"mysql's flag":           "mysqldump -uroot -pPLANTED db",
		"base64 that is decoded": "echo PLANTEDA1== | base64 -d",
		"base64 in a here text":  "base64 --decode <<< PLANTEDA1",
		"base64 with a slash":    "SECRET=/9aPLANTEDBcdEfg",
	} {
		t.Run(name, func(t *testing.T) {
			g, r := NewWithT(t), redact.New()
			got := r.Text(text)
			g.Expect(got).NotTo(ContainSubstring(planted))
			g.Expect(got).To(ContainSubstring(redact.Mark))
			g.Expect(r.Count).NotTo(BeEmpty())
		})
	}
}

func TestOtherTextsStay(t *testing.T) {
	g, r := NewWithT(t), redact.New()
	for _, text := range []string{
		"image nvcr.io/nvidia/driver@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"GPU-8f1c2d3e-0000-1111-2222-333344445555", "automountServiceAccountToken: false", "tokenReviews: 5",
		"tokenFile=/var/run/secrets/kubernetes.io/serviceaccount/token", "http://proxy.example.com:3128/path",
		"the author of the keyboard", "key: nvidia.com/gpu", "PASSWORD=$(FROM_SECRET)", "Secret my-credentials is missing",
	} {
		g.Expect(r.Text(text)).To(Equal(text))
	}
	g.Expect(r.Count).To(BeEmpty())
}

const pod = `
apiVersion: v1
kind: Pod
metadata:
  name: p
  managedFields: [{manager: PLANTED}]
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{"spec":"PLANTED-applied"}'
    example.com/note: PLANTED-note
    nvidia.com/gpu-operator.digest: abc
    nvidia.com/registry-token: PLANTED-annotation
spec:
  serviceAccountName: reader
  imagePullSecrets: [{name: registry-secret}]
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  containers:
  - name: main
    args: [--token, PLANTED-arg, "--password=PLANTED-arg2", --level, "3"]
    command: [sh, -c, "curl -H 'Authorization: Bearer PLANTED-command' https://u:PLANTED-url@host/"]
    env:
    - {name: DB_PASSWORD, value: PLANTED-env}
    - {name: HTTPS_PROXY, value: "http://user:PLANTED-proxy@proxy:3128"}
    - {name: NVIDIA_VISIBLE_DEVICES, value: all}
    - name: TOKEN
      valueFrom: {secretKeyRef: {name: my-secret, key: token}}
    - {name: COMMENT, value: "it is PLANTED-env here too"}
`

func TestObjects(t *testing.T) {
	g, r := NewWithT(t), redact.New()
	object := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(pod), &object.Object)).To(Succeed())
	r.Object(object, false)
	text, err := yaml.Marshal(object.Object)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.Finish(string(text))).NotTo(ContainSubstring(planted))
	for _, kept := range []string{
		"name: registry-secret", "name: my-secret", "key: nvidia.com/gpu", "value: all", "digest: abc", "- --level\n",
		"http://[redacted]@proxy:3128", "serviceAccountName: reader",
	} {
		g.Expect(string(text)).To(ContainSubstring(kept))
	}
	g.Expect(r.Finish("log: connecting with PLANTED-env and PLANTED-arg, PLANTED-annotation")).To(
		Equal("log: connecting with [redacted] and [redacted], [redacted]"), "what was found is removed elsewhere")
}

func TestConfigMapsAndSecrets(t *testing.T) {
	g := NewWithT(t)
	for _, kind := range []string{"ConfigMap", "Secret"} {
		r := redact.New()
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": kind,
			"data":       map[string]any{"config.yaml": "user: PLANTED", "password": "PLANTED-content"},
			"stringData": map[string]any{"a": "PLANTED"}, "binaryData": map[string]any{"b": "PLANTED"},
		}}
		r.Object(object, false)
		text, err := json.Marshal(object.Object)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(text)).NotTo(ContainSubstring(planted))
		g.Expect(string(text)).To(ContainSubstring(`"config.yaml":"[redacted: 13 bytes]"`))
		g.Expect(r.Finish("x PLANTED-content y")).To(Equal("x [redacted] y"))
	}
	own := &unstructured.Unstructured{Object: map[string]any{
		"kind": "ConfigMap", "data": map[string]any{"a": "version: v1\ntoken: PLANTED-kept\n"},
	}}
	redact.New().Object(own, true)
	kept, _, err := unstructured.NestedString(own.Object, "data", "a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.TrimSpace(kept)).To(Equal("version: v1\ntoken: [redacted]"))
}

// A credential is removed in base64, too: by what it decodes to, and where its plain text was found elsewhere.
func TestBase64IsRemoved(t *testing.T) {
	const secret = "hunter2-PLANTED"
	for name, plain := range map[string]string{
		"a password's line": "password=" + secret, "a user and a password": "admin:" + secret,
		"a URL": "https://u:" + secret + "@host/", "a flag": "-u me -p " + secret,
	} {
		t.Run(name, func(t *testing.T) {
			g, r := NewWithT(t), redact.New()
			encoded := base64.StdEncoding.EncodeToString([]byte(plain))
			g.Expect(r.Text("CONFIG: " + encoded + " end")).To(Equal("CONFIG: [redacted] end"))
			g.Expect(r.Finish("the log has " + encoded)).NotTo(ContainSubstring(encoded))
		})
	}
	g, r := NewWithT(t), redact.New()
	_ = r.Text("DB_PASSWORD=" + secret)
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	g.Expect(r.Finish("a bare one: " + encoded)).NotTo(ContainSubstring(strings.TrimRight(encoded, "=")))
	for _, kept := range []string{
		"bm90aGluZyBzZWNyZXQgaGVyZQ==", "0123456789abcdef0123456789abcdef", "NVIDIA-H100-80GB-HBM3",
		"iptables -p tcp --dport 80",
		"mkdir -p /run/nvidia", "nvidia-persistenceddaemon",
	} {
		g.Expect(r.Text(kept)).To(Equal(kept))
	}
}

// The flag -p has other meanings than a password. Its value is removed there alone, and programs are known that use it
// otherwise: names of the operator, which follow mkdir -p, stay readable in all files.
func TestOtherMeaningsOfAShortFlagStay(t *testing.T) {
	g, r := NewWithT(t), redact.New()
	const script = "mkdir -p lib/modules && ps -p 1234567 && docker run -p 8080:9400 x; mkdir -p gpu-operator-validator"
	for _, kept := range []string{
		script, "podman run -p 127.0.0.1:8080:9400/tcp x", "/usr/bin/install -p driver-binary dir", "x -p 8080:9400",
		`sh -c "mkdir -p nvidia-driver-root"`, "kill -p nvidia-persistenced", "ssh host -p 22222",
		"nc -p 12345", "+ sudo mkdir -p gpu-operator-validator",
	} {
		g.Expect(r.Text(kept)).To(Equal(kept))
	}
	object := &unstructured.Unstructured{Object: map[string]any{"args": []any{
		"mkdir", "-p", "gpu-operator-validator", "x"}, "other": []any{"run", "-p", "8080:9400"},
		"script": []any{"sh", "-c", script}}}
	want := object.DeepCopy()
	r.Object(object, false)
	g.Expect(object).To(Equal(want))
	g.Expect(r.Count).To(BeEmpty())

	g.Expect(r.Text("unknown -p gpu-operator-validator")).To(Equal("unknown -p [redacted]"))
	g.Expect(r.Text("mkdir -p a; mysql -p PLANTED-1")).To(Equal("mkdir -p a; mysql -p [redacted]"))
	for _, command := range []string{
		"docker login -u mkdir", "docker exec mkdir mysql", "ssh host cli", "pip install x", "sshpass", "mkdir a | cli",
	} {
		g.Expect(r.Text(command + " -p PLANTED-word")).To(Equal(command + " -p [redacted]"))
	}
	object.Object["args"] = []any{"login", "-p", "gpu-operator-validator"}
	r.Object(object, false)
	g.Expect(object.Object["args"]).To(Equal([]any{"login", "-p", "[redacted]"}))
	const elsewhere = "pod gpu-operator-validator-abcde"
	g.Expect(r.Finish(elsewhere)).To(Equal(elsewhere))
}
