# The operator's image: static programs and one that is not, no shell, no root. It has a C library only
# for what the container runtime injects: gpu-node validate toolkit runs nvidia-smi, and gpu-node-cuda
# loads libcuda.so.1.

# The compiler runs on the builder's own platform and crosses to the target's.
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26 AS builder
WORKDIR /src

# Modules first: they change less often than the sources, and stay in the layer's cache.
COPY go.mod go.sum ./
RUN go mod download

COPY . .
# gpu-node-cuda, too, is built without cgo, for arm64 from amd64 as well: its library writes the
# loader and the C library into the program itself, so that no C compiler has to cross.
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath \
      -ldflags "-s -w -X github.com/clusterpolicy/gpu-operator/internal/version.Version=${VERSION}" \
      -o /out/ ./cmd/gpu-operator ./cmd/gpu-node ./cmd/gpu-node-cuda ./cmd/kubectl-gpu

FROM gcr.io/distroless/cc-debian12:nonroot
ARG VERSION=dev
LABEL org.opencontainers.image.title="gpu-operator" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.source="https://github.com/clusterpolicy/gpu-operator" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY LICENSE /licenses/LICENSE
# gpu-node and gpu-node-cuda run in the operands' pods; their paths are known to the manifests.
# kubectl-gpu is for people and pipelines that have the image at hand.
COPY --from=builder /out/gpu-operator /out/gpu-node /out/gpu-node-cuda /out/kubectl-gpu /usr/bin/
# By number, so that the kubelet can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["/usr/bin/gpu-operator"]
