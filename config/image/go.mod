module github.com/clusterpolicy/gpu-operator/config/image

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.10.0
	github.com/google/go-containerregistry v0.22.1
	github.com/onsi/gomega v1.44.0
	go.yaml.in/yaml/v3 v3.0.5
)

require (
	github.com/docker/cli v29.7.2+incompatible // indirect
	github.com/docker/docker-credential-helpers v0.9.3 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.38.0 // indirect
	gotest.tools/v3 v3.5.2 // indirect
)
