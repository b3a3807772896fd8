package fault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// replaced is the response that an action sends instead of the API server's.
type replaced Action

func (r replaced) Error() string { return fmt.Sprintf("the proxy responded with %d", r.Status) }

// failed responds to the client if there is no response of the API server to pass on.
func failed(w http.ResponseWriter, _ *http.Request, err error) {
	var action replaced
	switch {
	case errors.As(err, &action) && action.Garbage:
		writeGarbage(w)
	case errors.As(err, &action):
		writeStatus(w, action.Status, action.RetryAfter)
	default:
		// As if the API server itself were down.
		panic(http.ErrAbortHandler)
	}
}

func writeStatus(w http.ResponseWriter, code, retryAfter int) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w,
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"injected by the `+
			`campaign","reason":%q,"code":%d}`,
		reasons[code], code)
}

// reasons are those by which clients distinguish errors.
var reasons = map[int]string{
	http.StatusBadRequest:          "BadRequest",
	http.StatusUnauthorized:        "Unauthorized",
	http.StatusForbidden:           "Forbidden",
	http.StatusConflict:            "Conflict",
	http.StatusGone:                "Expired",
	http.StatusUnprocessableEntity: "Invalid",
	http.StatusTooManyRequests:     "TooManyRequests",
	http.StatusInternalServerError: "InternalError",
	http.StatusServiceUnavailable:  "ServiceUnavailable",
	http.StatusGatewayTimeout:      "Timeout",
}

func writeGarbage(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"kind":"Li`)
}

// pause waits, and reports whether the client is still connected afterwards.
func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
