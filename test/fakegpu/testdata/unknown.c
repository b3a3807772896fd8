// The functions of NVML that the stand-in does not have. Each call is recorded in FAKE_UNKNOWN of the state.
#include "fake.h"
#include "nvml.h"

#include <stdio.h>

static int unknown(const char *function) {
	char path[2 * MAX_WORDS];
	fake_state("FAKE_UNKNOWN", path, sizeof path);
	FILE *file = fopen(path, "a");
	if (file) {
		fprintf(file, "%s\n", function);
		fclose(file);
	}
	return NVML_ERROR_FUNCTION_NOT_FOUND;
}

// The other files of the library replace these.
#define NAME(function)                                                                                                 \
	__attribute__((weak)) int function(void) { return unknown(#function); }
#include "names.h"
