package v1

// Condition types about single fields of the spec. They do not affect Ready.
const (
	// ConditionUnsupportedFields: the spec sets fields that have no effect, or another one than their value says. The
	// message states what happens instead.
	ConditionUnsupportedFields = "UnsupportedFields"
	// ConditionDeprecatedFields: the spec sets fields that are accepted only for existing policies. The message states
	// what to use instead.
	ConditionDeprecatedFields = "DeprecatedFields"
)

// ReasonDoubtfulFields is the reason of ConditionUnsupportedFields if all fields in it are supported: a value has no
// effect beside the others, or is not taken literally.
// Cause: a field without the one that it depends on, an unknown pull policy, or a variable that is listed twice. Or a
// ConfigMap with several configurations of which none is the default.
// Remedy: change or remove each field, as the message describes.
const ReasonDoubtfulFields = "DoubtfulFields"

// ReasonDeprecated is the reason of ConditionDeprecatedFields: the spec sets deprecated fields.
// Cause: the policy was written for NVIDIA's operator, or for an older version.
// Remedy: replace or remove each field, as the message describes.
const ReasonDeprecated = "Deprecated"
