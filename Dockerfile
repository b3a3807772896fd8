# The operator's image: two static programs, no shell, no root. It has a C library only because
# "gpu-node validate toolkit" runs the nvidia-smi that the container runtime injects.

# The compiler runs on the builder's own platform and crosses to the target's.
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26 AS builder
WORKDIR /src

# Modules first: they change less often than the sources, and stay in the layer's cache.
COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath \
      -ldflags "-s -w -X github.com/clusterpolicy/gpu-operator/internal/version.Version=${VERSION}" \
      -o /out/ ./cmd/gpu-operator ./cmd/gpu-node

FROM gcr.io/distroless/cc-debian12:nonroot
ARG VERSION=dev
LABEL org.opencontainers.image.title="gpu-operator" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.source="https://github.com/clusterpolicy/gpu-operator" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY LICENSE /licenses/LICENSE
# gpu-node runs in the operands' pods; its path is known to their manifests.
COPY --from=builder /out/gpu-operator /out/gpu-node /usr/bin/
# By number, so that the kubelet can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["/usr/bin/gpu-operator"]
