package cluster

import (
	"os"
	"testing"
	"time"
)

func TestCutWatchesAndDeletesAreFound(t *testing.T) {
	// Lines as the API server writes them, without what is not read. The last one is still being written.
	log, err := os.Open("testdata/audit.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	calls, err := readCalls(log)
	if err != nil {
		t.Fatal(err)
	}
	if len(calls) != 9 {
		t.Errorf("%d calls instead of 9: the last line is not complete", len(calls))
	}
	cut := calls.Cut()
	if got, want := cut.String(), "     1 watch pods 200\n"; got != want {
		t.Errorf("cut watches:\ngot  %q\nwant %q", got, want)
	}
	if len(cut) == 1 && (cut[0].Took != 5250*time.Millisecond || cut[0].Limit != 7*time.Minute) {
		t.Errorf("the watch took %s of %s", cut[0].Took, cut[0].Limit)
	}
	if got, want := calls.Deletes("pods").String(),
		"     1 create pods/eviction a/c 200\n     1 delete pods a/b 200\n"; got != want {
		t.Errorf("deletes of pods:\ngot  %q\nwant %q", got, want)
	}
}
