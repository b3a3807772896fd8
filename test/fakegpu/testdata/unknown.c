// The functions of NVML that the stand-in does not have. Each call is recorded in FAKE_UNKNOWN of the state, or ends the
// program where it cannot be.
#include "fake.h"
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>

static int unknown(const char *function) {
	char path[2 * MAX_WORDS];
	fake_state("FAKE_UNKNOWN", path, sizeof path);
	FILE *file = fopen(path, "a");
	if (!file || fprintf(file, "%s\n", function) < 0 || fclose(file) != 0) {
		fprintf(stderr, "libnvidia-ml.so.1 does not have %s, and cannot record that in %s\n", function, path);
		abort();
	}
	return NVML_ERROR_FUNCTION_NOT_FOUND;
}

// The other files of the library replace these.
#define NAME(function)                                                                                                 \
	__attribute__((weak)) int function(void) { return unknown(#function); }
#include "names.h"
