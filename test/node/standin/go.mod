// What plays NVIDIA's programs on the real node of the tests. A module of its own, so that its dependencies
// are not the operator's.
module github.com/clusterpolicy/gpu-operator/test/node/standin

go 1.26.0

require (
	github.com/fsnotify/fsnotify v1.9.0
	golang.org/x/sys v0.46.0
	google.golang.org/grpc v1.81.1
	k8s.io/kubelet v0.36.3
	sigs.k8s.io/yaml v1.6.0
)

require (
	go.yaml.in/yaml/v2 v2.4.3 // indirect
	golang.org/x/net v0.51.0 // indirect
	golang.org/x/text v0.34.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260226221140-a57be14db171 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
)
