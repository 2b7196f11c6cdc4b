package shape

// rpcNames are the names of google.rpc.Code except OK:
// https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto.
var rpcNames = map[string]bool{
	"CANCELLED": true, "UNKNOWN": true, "INVALID_ARGUMENT": true, "DEADLINE_EXCEEDED": true,
	"NOT_FOUND": true, "ALREADY_EXISTS": true, "PERMISSION_DENIED": true, "UNAUTHENTICATED": true,
	"RESOURCE_EXHAUSTED": true, "FAILED_PRECONDITION": true, "ABORTED": true, "OUT_OF_RANGE": true,
	"UNIMPLEMENTED": true, "INTERNAL": true, "UNAVAILABLE": true, "DATA_LOSS": true,
}

// throttles are the codes that AWS's own SDKs take for throttling:
// https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html.
var throttles = map[string]bool{
	"Throttling": true, "ThrottlingException": true, "ThrottledException": true,
	"RequestThrottled": true, "RequestThrottledException": true, "TooManyRequestsException": true,
	"ProvisionedThroughputExceededException": true, "TransactionInProgressException": true,
	"RequestLimitExceeded": true, "BandwidthLimitExceeded": true, "LimitExceededException": true,
	"SlowDown": true, "PriorRequestNotComplete": true, "EC2ThrottledException": true,
}

// modelErrors are the types of Anthropic's errors that can end a stream:
// https://docs.anthropic.com/en/api/errors.
var modelErrors = map[string]string{
	"overloaded_error": "unavailable",
	"api_error":        "unavailable",
	"rate_limit_error": "rate_limited",
	"timeout_error":    "timeout",
}

// sqlStates has single SQLSTATEs and sqlClasses has classes of them, as PostgreSQL documents them:
// https://www.postgresql.org/docs/current/errcodes-appendix.html.
var (
	sqlStates = map[string]string{
		"57014": "timeout",      // query_canceled: statement_timeout, where the caller did not cancel
		"55P03": "conflict",     // lock_not_available
		"42501": "unauthorized", // insufficient_privilege
	}
	sqlClasses = map[string]string{
		"08":  "unavailable", // connection exception
		"53":  "unavailable", // insufficient resources
		"57P": "unavailable", // operator intervention: the server shuts down or starts
		"58":  "unavailable", // system error
		"XX":  "unavailable", // internal error
		"40":  "conflict",    // transaction rollback
		"28":  "unauthorized",
		"22":  "invalid", // data exception
		"23":  "invalid", // integrity constraint violation
		"42":  "invalid", // syntax error or access rule violation
		"0A":  "invalid", // feature not supported
	}
)

// sqlState returns the kind of an SQLSTATE, or "" for a code that is none or is not listed.
func sqlState(code string) string {
	if len(code) != 5 {
		return ""
	}
	for _, c := range []byte(code) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') {
			return ""
		}
	}
	for _, kind := range [...]string{sqlStates[code], sqlClasses[code[:3]], sqlClasses[code[:2]]} {
		if kind != "" {
			return kind
		}
	}
	return ""
}
