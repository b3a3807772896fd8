package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/kube/redact"
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
		"curl's user":            "+ curl -fsS -u admin:PLANTED9 https://host/",
		"curl's long flags":      `sh -c "curl --user 'admin:PLANTED9' --proxy-user=p:PLANTED8 https://host/"`,
		"curl's joined flags":    "curl -sSu admin:PLANTED9 https://host/; curl -uadmin:PLANTED8 x",
		"a continued line":       "curl -s \\\n  -u admin:PLANTED9 https://host/",
		"arguments in JSON":      `exec ["curl","-u","admin:PLANTED9"]`,
		"redis-cli's flag":       "redis-cli -h db -a PLANTED-1 ping",
		"ldapsearch's flag":      "/usr/bin/ldapsearch -x -D cn=a -w PLANTED-1",
		"smbclient's user":       "smbclient //host/share -U 'me%PLANTED'",
		"an MQTT client's flag":  "mosquitto_pub -u me -P PLANTED -t a",  //nolint:misspell // A program.
		"an MQTT joined flag":    "mosquitto_pub -u me -PPLANTED-1 -t a", //nolint:misspell // A program.
		"a webhook":              "POST https://hooks.slack.com/services/T0/B0/PLANTED failed",
		"a signed URL of Azure":  "GET https://a.blob.core.windows.net/c?sv=2022&sig=PLANTED%3D",
		"a signed URL of AWS":    "GET https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature=PLANTED",
		"a signed URL in JSON":   `{"url":"https://a/?sv=1\u0026sig=PLANTED"}`,
		"a block of YAML":        "a: 1\npassword: |\n  PLANTED\n\n  PLANTED2\nb: 2\n",
		"a block in a list":      "users:\n- password: >-\n    PLANTED\n  name: a\n",
		"a block as JSON":        `{"config":"password: |\n  PLANTED\nb: 2"}`,
		"an object in JSON":      `{"password":{"type":"plain","value":"PLANTED"}}`,
		"a CLI's key":            "NGC_CLI_KEY=PLANTED",
		"a variable SSH_KEY":     `[{"name":"SSH_KEY","value":"PLANTED"}]`,
		"a short password name":  "DB_PW=PLANTED rootpw: PLANTED PGPASS='PLANTED'",
		"standard input":         "echo PLANTED | docker login -u '$oauthtoken' --password-stdin nvcr.io",
		"a here text":            "docker login --password-stdin nvcr.io <<< 'PLANTED'",
		"skopeo's flag":          "skopeo copy --src-creds me:PLANTED docker://a docker://b",
	} {
		t.Run(name, func(t *testing.T) {
			g, r := NewWithT(t), redact.New()
			got := r.RedactText(text)
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
		"curl -o a:b https://host/", "docker run -u 1000:1000 x", "tar -a x", "grep -w gpu-feature-discovery", "cp -P a b",
		"password: |\nb: 2", `{"secretRef":{"name":"my-secret"}}`, "echo done | tee /dev/log", "topologyKey: zone-a",
		"https://host/api?signal=15", "the author of the keyboard", "key: nvidia.com/gpu", "PASSWORD=$(FROM_SECRET)",
		"Secret my-credentials is missing",
	} {
		g.Expect(r.RedactText(text)).To(Equal(text))
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
    - {name: NGC_CLI_KEY, value: PLANTED-cli}
    - {name: SSH_KEY, value: PLANTED-ssh}
    - {name: DB_PW, value: PLANTED-pw}
    - {name: PGPASS, value: PLANTED-pg}
  - name: curl
    command: [/usr/bin/curl, -u, "admin:PLANTED-user", -s]
  - name: apart
    command: [curl]
    args: [--user, "admin:PLANTED-user2", "-uadmin:PLANTED-user3"]
  - name: by-image
    image: docker.io/curlimages/curl:8
    args: [-u, "admin:PLANTED-user4"]
  - name: redis
    command: [redis-cli, -a, PLANTED-redis]
  password: {value: PLANTED-nested, note: stays-here}
  dbPassword: PLANTED-field
  ssh_key: PLANTED-key
`

func TestObjects(t *testing.T) {
	g, r := NewWithT(t), redact.New()
	object := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(pod), &object.Object)).To(Succeed())
	r.RedactObject(object, false)
	text, err := yaml.Marshal(object.Object)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.Finish(string(text))).NotTo(ContainSubstring(planted))
	for _, kept := range []string{
		"name: registry-secret", "name: my-secret", "key: nvidia.com/gpu", "value: all", "digest: abc", "- --level\n",
		"- -s\n", "- -u[redacted]\n", "image: docker.io/curlimages/curl:8",
		"http://[redacted]@proxy:3128", "serviceAccountName: reader", "note: stays-here", "dbPassword: '[redacted]'",
	} {
		g.Expect(string(text)).To(ContainSubstring(kept))
	}
	g.Expect(r.Finish("log: connecting with PLANTED-env and PLANTED-arg, PLANTED-annotation, PLANTED-user")).To(
		Equal("log: connecting with [redacted] and [redacted], [redacted], [redacted]"),
		"what was found is removed elsewhere")
	g.Expect(r.Count).To(HaveKeyWithValue("value of a name that may be a credential's", 3))
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
		r.RedactObject(object, false)
		text, err := json.Marshal(object.Object)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(text)).NotTo(ContainSubstring(planted))
		g.Expect(string(text)).To(ContainSubstring(`"config.yaml":"[redacted: 13 bytes]"`))
		g.Expect(r.Finish("x PLANTED-content y")).To(Equal("x [redacted] y"))
		g.Expect(r.Count).To(HaveKeyWithValue("repetition of a credential", 1))
	}
	own := &unstructured.Unstructured{Object: map[string]any{
		"kind": "ConfigMap", "data": map[string]any{"a": "version: v1\ntoken: PLANTED-kept\n"},
	}}
	redact.New().RedactObject(own, true)
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
		"a file": "a: b\r\n\tpassword=" + secret + "\nb: c\n",
	} {
		t.Run(name, func(t *testing.T) {
			g, r := NewWithT(t), redact.New()
			encoded := base64.StdEncoding.EncodeToString([]byte(plain))
			g.Expect(r.RedactText("CONFIG: " + encoded + " end")).To(Equal("CONFIG: [redacted] end"))
			g.Expect(r.Finish("the log has " + encoded)).NotTo(ContainSubstring(encoded))
		})
	}
	g, r := NewWithT(t), redact.New()
	_ = r.RedactText("DB_PASSWORD=" + secret)
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	g.Expect(r.Finish("a bare one: " + encoded)).NotTo(ContainSubstring(strings.TrimRight(encoded, "=")))
	_ = r.RedactText("DB_PASSWORD=correcthorsebatterystaple OTHER_PASSWORD=driver")
	g.Expect(r.Finish("the driver has correcthorsebatterystaple")).To(Equal("the driver has [redacted]"))
	for _, kept := range []string{
		"bm90aGluZyBzZWNyZXQgaGVyZQ==", "0123456789abcdef0123456789abcdef", "NVIDIA-H100-80GB-HBM3",
		"iptables -p tcp --dport 80",
		"mkdir -p /run/nvidia", "nvidia-persistenceddaemon",
	} {
		g.Expect(r.RedactText(kept)).To(Equal(kept))
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
		"(mkdir -p gpu-operator-validator)",
	} {
		g.Expect(r.RedactText(kept)).To(Equal(kept))
	}
	object := &unstructured.Unstructured{Object: map[string]any{"args": []any{
		"mkdir", "-p", "gpu-operator-validator", "x"}, "other": []any{"run", "-p", "8080:9400"},
		"script": []any{"sh", "-c", script}}}
	want := object.DeepCopy()
	r.RedactObject(object, false)
	g.Expect(object).To(Equal(want))
	g.Expect(r.Count).To(BeEmpty())

	g.Expect(r.RedactText("unknown -p gpu-operator-validator")).To(Equal("unknown -p [redacted]"))
	g.Expect(r.RedactText("mkdir -p a; mysql -p PLANTED-1")).To(Equal("mkdir -p a; mysql -p [redacted]"))
	for _, command := range []string{
		"docker login -u mkdir", "docker exec mkdir mysql", "ssh host cli", "pip install x", "sshpass", "mkdir a | cli",
	} {
		g.Expect(r.RedactText(command + " -p PLANTED-word")).To(Equal(command + " -p [redacted]"))
	}
	object.Object["args"] = []any{"login", "-p", "gpu-operator-validator"}
	r.RedactObject(object, false)
	g.Expect(object.Object["args"]).To(Equal([]any{"login", "-p", "[redacted]"}))
	const elsewhere = "pod gpu-operator-validator-abcde"
	g.Expect(r.Finish(elsewhere)).To(Equal(elsewhere))
}
