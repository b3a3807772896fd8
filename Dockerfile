# The operator's image, for linux/amd64 and linux/arm64: static programs and one that is not, no shell, no
# root. It has a C library only for what the container runtime injects: gpu-node validate toolkit runs
# nvidia-smi, and gpu-node-cuda loads libcuda.so.1.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=... -t ... --push .
#
# Where the registries of the two images are not reached, name copies of them; the runtime image may be any
# that has glibc. GOPROXY is where Go takes modules from.
ARG GO_IMAGE=docker.io/library/golang:1.26@sha256:3aff6657219a4d9c14e27fb1d8976c49c29fddb70ba835014f477e1c70636647
ARG BASE_IMAGE=gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f

# The compiler runs on the builder's own platform and crosses to the target's.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS builder
ARG GOPROXY=https://proxy.golang.org,direct
WORKDIR /src

# Modules first: they change less often than the sources, and stay in the layer's cache.
COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG TARGETARCH
ARG VERSION=dev
RUN GOARCH=${TARGETARCH} VERSION=${VERSION} config/image/build.sh rootfs /out

FROM ${BASE_IMAGE}
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gpu-operator"
LABEL org.opencontainers.image.description="Makes the NVIDIA GPU nodes of a Kubernetes cluster ready for work"
LABEL org.opencontainers.image.source="https://github.com/clusterpolicy/gpu-operator"
LABEL org.opencontainers.image.documentation="https://github.com/clusterpolicy/gpu-operator/blob/main/README.md"
LABEL org.opencontainers.image.licenses="Apache-2.0"
LABEL org.opencontainers.image.version="${VERSION}"
LABEL org.opencontainers.image.revision="${REVISION}"
COPY --from=builder /out/ /
# By number, so that the kubelet can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["/gpu-operator"]
