package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/pinned"
)

// registry is a registry for one test, without TLS.
type registry struct {
	*WithT
	t *testing.T
	// host is its address, as in the names of images.
	host string
}

// manifest is a manifest or an index, with the fields that the tests read.
type manifest struct {
	MediaType string       `json:"mediaType"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
	Manifests []descriptor `json:"manifests"`
}

type descriptor struct {
	Digest   string `json:"digest"`
	Platform struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// startRegistry runs the registry that test/tools/registry pins until the end of the test.
func startRegistry(t *testing.T) *registry {
	t.Helper()
	g := NewWithT(t)
	binary, err := pinned.Tool(repo, "registry", "registry", "github.com/distribution/distribution/v3")
	g.Expect(err).NotTo(HaveOccurred())
	host, err := cluster.FreeAddress()
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	config := fmt.Sprintf("{version: 0.1, storage: {filesystem: {rootdirectory: %q}}, http: {addr: %q}}", dir, host)
	path := filepath.Join(t.TempDir(), "registry.yaml")
	g.Expect(os.WriteFile(path, []byte(config), 0o600)).To(Succeed())
	var log bytes.Buffer
	server := exec.CommandContext(t.Context(), binary, "serve", path)
	server.Env = []string{"OTEL_TRACES_EXPORTER=none"}
	server.Stdout, server.Stderr = &log, &log
	g.Expect(server.Start()).To(Succeed())
	t.Cleanup(func() {
		if err := server.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		_ = server.Wait() // It was killed.
		if t.Failed() {
			t.Logf("log of the registry:\n%s", log.String())
		}
	})
	r := &registry{WithT: g, t: t, host: host}
	r.Eventually(func() error {
		_, err := r.fetch("")
		return err
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Succeed())
	return r
}

// fetch returns what the registry has at a path below /v2/.
func (r *registry) fetch(path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.host+"/v2/"+path, nil)
	if err != nil {
		return nil, err
	}
	for _, kind := range []string{"index", "manifest"} {
		request.Header.Add("Accept", "application/vnd.oci.image."+kind+".v1+json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /v2/%s returns %s", path, response.Status)
	}
	return io.ReadAll(response.Body)
}

// manifest returns that of an image by its tag or digest, and its digest.
func (r *registry) manifest(repository, reference string) (manifest, string) {
	r.t.Helper()
	text, err := r.fetch(repository + "/manifests/" + reference)
	r.Expect(err).NotTo(HaveOccurred())
	m := manifest{}
	r.Expect(json.Unmarshal(text, &m)).To(Succeed())
	return m, fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}

// unpack writes the regular files in the layers of an image to a folder, and returns it with the configuration.
func (r *registry) unpack(repository string, image manifest) (dir string, config map[string]any) {
	r.t.Helper()
	text, err := r.fetch(repository + "/blobs/" + image.Config.Digest)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(json.Unmarshal(text, &config)).To(Succeed())
	dir = r.t.TempDir()
	for _, layer := range image.Layers {
		packed, err := r.fetch(repository + "/blobs/" + layer.Digest)
		r.Expect(err).NotTo(HaveOccurred())
		plain, err := gzip.NewReader(bytes.NewReader(packed))
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(extract(tar.NewReader(plain), dir)).To(Succeed())
	}
	return dir, config
}

// extract writes the regular files of an archive to a folder.
func extract(files *tar.Reader, dir string) error {
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(header.Name) {
			return fmt.Errorf("%s is outside of the archive", header.Name)
		}
		path := filepath.Join(dir, header.Name)
		content, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, header.FileInfo().Mode()))
		if err != nil {
			return err
		}
	}
}
