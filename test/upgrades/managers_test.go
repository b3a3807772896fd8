package upgrades

import (
	"context"
	"net/http"
	"net/url"
	"path/filepath"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// managers are the operators of an env.
type managers struct {
	running []*cluster.Operator
	logs    []string
}

// start starts an operator as a process with its own ServiceAccount.
func (e *env) start() {
	e.t.Helper()
	e.startAt("")
}

// startAt starts an operator that uses another server as the API server, with further variables.
func (e *env) startAt(server string, variables ...string) *cluster.Operator {
	e.t.Helper()
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(e.t.Context(), namespace, account, server)
	e.Expect(err).NotTo(HaveOccurred())
	operator, err := cluster.StartOperator(context.Background(), cluster.OperatorOptions{
		Binary: e.binary, Kubeconfig: kubeconfig, LogFile: filepath.Join(e.logDir, "operator.log"),
		Env: variables,
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.managers.running = append(e.managers.running, operator)
	e.managers.logs = append(e.managers.logs, operator.LogFile)
	return operator
}

// stop ends all operators gracefully.
func (m *managers) stop(e *env) {
	for _, operator := range m.running {
		select {
		case <-operator.Done():
		default:
			e.Expect(operator.Stop()).To(Succeed())
		}
	}
	m.running = nil
}

// front is a proxy between operators and the API server.
func (e *env) front() (*fault.Proxy, string) {
	e.t.Helper()
	var proxy *fault.Proxy
	front, err := e.cluster.NewFront(func(target *url.URL, transport http.RoundTripper) http.Handler {
		proxy = fault.NewProxy(target, transport)
		return proxy
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.t.Cleanup(func() { e.Expect(front.Close()).To(Succeed()) })
	return proxy, front.URL
}
