package app

import (
	goflag "flag"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// logOptions configures the log.
type logOptions struct {
	debug bool
	// zap is set by the flags of controller-runtime, which NVIDIA's operator has too.
	zap zap.Options
}

func (o *logOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.debug, "debug", false, "log at debug level, unless --zap-log-level is set")
	flags.BoolVar(&o.zap.Development, "zap-devel", false,
		"defaults for development: --zap-encoder=console, --zap-log-level=debug and stack traces of warnings")
	// The usage that comes with them states other defaults.
	bound := goflag.NewFlagSet("", goflag.ContinueOnError)
	o.zap.BindFlags(bound)
	value := func(name string) pflag.Value { return pflag.PFlagFromGoFlag(bound.Lookup(name)).Value }
	flags.Var(value("zap-encoder"), "zap-encoder", "format of the log: json or console (default json)")
	flags.Var(value("zap-log-level"), "zap-log-level",
		"lowest level that is logged: debug, info, error, panic, or a number above 0 for more than debug "+
			"(default info)")
	flags.Var(value("zap-stacktrace-level"), "zap-stacktrace-level",
		"lowest level that is logged with a stack trace: info, error or panic (default panic)")
	flags.Var(value("zap-time-encoding"), "zap-time-encoding",
		"format of times: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano (default rfc3339)")
}

// logger returns the configured logger. By default it writes JSON lines, and only panics have stack traces: an error
// is enough for a failed call.
func (o *logOptions) logger() logr.Logger {
	options := o.zap
	if options.Level == nil && o.debug {
		options.Level = zapcore.DebugLevel
	}
	if options.StacktraceLevel == nil && !options.Development {
		options.StacktraceLevel = zapcore.PanicLevel
	}
	return zap.New(zap.UseFlagOptions(&options), zap.RawZapOpts(uberzap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return lazy{core}
	})))
}

// lazy encodes a logger's values only when something is logged: controller-runtime creates a logger with values for
// each reconcile, and most reconciles log nothing.
type lazy struct{ zapcore.Core }

// With implements zapcore.Core.
func (l lazy) With(fields []zapcore.Field) zapcore.Core {
	return lazy{zapcore.NewLazyWith(l.Core, fields)}
}
