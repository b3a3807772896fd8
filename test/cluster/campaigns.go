package cluster

import "os"

// WholeCampaigns tells whether tests run each campaign whole, as make test-full asks for by TEST_FULL=1, and not a
// fixed sample of it.
func WholeCampaigns() bool { return os.Getenv("TEST_FULL") != "" }
