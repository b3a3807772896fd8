package cluster

import "os"

// FullCampaigns reports whether tests run complete campaigns (TEST_FULL=1, as make test-full sets it) instead of a
// fixed sample.
func FullCampaigns() bool { return os.Getenv("TEST_FULL") != "" }
