#define _GNU_SOURCE
#include "fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fake_gpus(int mig[MAX_GPUS]) {
	const char *list = getenv("FAKE_GPUS");
	char copy[256];
	int n = 0;
	snprintf(copy, sizeof copy, "%s", list ? list : "gpu");
	for (char *rest, *word = strtok_r(copy, " ", &rest); word && n < MAX_GPUS; word = strtok_r(NULL, " ", &rest)) {
		mig[n++] = strncmp(word, "mig", 3) == 0 ? atoi(word + 3) : -1;
	}
	return n;
}

void fake_uuid(int gpu, int mig, uint8_t uuid[16]) {
	for (int i = 0; i < 16; i++) {
		uuid[i] = (uint8_t)(0x10 * (gpu + 1) + i);
	}
	uuid[15] = (uint8_t)(mig + 1);
}

void fake_uuid_text(int gpu, int mig, char *text, size_t size) {
	uint8_t u[16];
	fake_uuid(gpu, mig, u);
	snprintf(text, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
	         mig < 0 ? "GPU" : "MIG", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
	         u[13], u[14], u[15]);
}

void fake_bus(int gpu, char *text, size_t size) { snprintf(text, size, "0000:%02X:00.0", 7 + gpu); }

int fake_word(const char *variable, const char *key, long fallback, long *value) {
	const char *words = getenv(variable);
	char copy[512];
	size_t length = strlen(key);
	snprintf(copy, sizeof copy, "%s", words ? words : "");
	for (char *rest, *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		if (strncmp(word, key, length) != 0 || (word[length] != '=' && word[length] != 0)) {
			continue;
		}
		*value = word[length] == '=' ? strtol(word + length + 1, NULL, 0) : fallback;
		return 1;
	}
	return 0;
}

int fake_fault(const char *variable, const char *function, int gpu) {
	long value, on;
	char key[128];
	if (gpu >= 0 && fake_word(variable, "on", 0, &on) && on != gpu) {
		return 0;
	}
	snprintf(key, sizeof key, "hang:%s", function);
	while (fake_word(variable, key, 0, &value)) {
		pause();
	}
	snprintf(key, sizeof key, "crash:%s", function);
	if (fake_word(variable, key, 0, &value)) {
		signal(SIGSEGV, SIG_DFL);
		raise(SIGSEGV);
	}
	return fake_word(variable, function, 999, &value) ? (int)value : 0;
}
