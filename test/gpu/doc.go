// Package gpu runs the on-node programs against the NVIDIA driver of this machine. Its tests are skipped unless
// GPU_TEST=1 is set, as make test-gpu does: an ordinary test run must not depend on the machine. They use the
// programs in bin/ or in the directory GPU_TEST_BIN, so that they also run on a machine without Go: go test -c -o
// bin/ ./test/gpu, then copy bin/.
package gpu
