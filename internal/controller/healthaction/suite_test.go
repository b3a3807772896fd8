package healthaction_test

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/suite"
)

// The control plane and what all specs share. It runs no controllers: the fixture plays the node controller.
var (
	cfg       *rest.Config
	scheme    = cluster.Scheme()
	catalogue operand.Catalogue
)

func TestHealthActionController(t *testing.T) {
	suite.Run(t, "health action", func(config *rest.Config) {
		cfg = config
		var err error
		if catalogue, err = operands.Catalogue(); err != nil {
			t.Fatal(err)
		}
	})
}
