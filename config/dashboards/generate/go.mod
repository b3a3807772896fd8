module github.com/clusterpolicy/gpu-operator/config/dashboards/generate

go 1.26.0

require (
	github.com/clusterpolicy/gpu-operator v0.0.0
	github.com/grafana/grafana-foundation-sdk/go v0.0.22
	go.yaml.in/yaml/v3 v3.0.5
)

replace github.com/clusterpolicy/gpu-operator => ../../..
