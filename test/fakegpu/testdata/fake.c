#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

void fake_path(const char *file, char *path, size_t size) {
	Dl_info self;
	const char *slash;
	path[0] = 0;
	if (dladdr((void *)fake_gpus, &self) && (slash = strrchr(self.dli_fname, '/'))) {
		snprintf(path, size, "%.*s/%s", (int)(slash - self.dli_fname), self.dli_fname, file);
	}
}

int fake_words(const char *variable, char *copy, size_t size) {
	const char *set = getenv(variable);
	char path[4096];
	copy[0] = 0;
	if (set) {
		snprintf(copy, size, "%s", set);
		return 1;
	}
	fake_path(variable, path, sizeof path);
	FILE *file = fopen(path, "r");
	if (!file) {
		return 0;
	}
	copy[fread(copy, 1, size - 1, file)] = 0;
	fclose(file);
	return 1;
}

void fake_state(const char *file, char *path, size_t size) {
	char dir[MAX_WORDS];
	if (!fake_words("FAKE_STATE", dir, sizeof dir)) {
		fake_path(file, path, size);
		return;
	}
	dir[strcspn(dir, SPACE)] = 0;
	snprintf(path, size, "%s/%s", dir, file);
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
	char copy[MAX_WORDS];
	size_t length = strlen(key);
	fake_words(variable, copy, sizeof copy);
	for (char *rest, *word = strtok_r(copy, SPACE, &rest); word; word = strtok_r(NULL, SPACE, &rest)) {
		if (strncmp(word, key, length) != 0 || (word[length] != '=' && word[length] != 0)) {
			continue;
		}
		*value = word[length] == '=' ? strtol(word + length + 1, NULL, 0) : fallback;
		return 1;
	}
	return 0;
}

long fake_value(const char *variable, const char *key, int gpu, long fallback) {
	char one[128];
	long value;
	snprintf(one, sizeof one, "%s@%d", key, gpu);
	return fake_word(variable, one, 1, &value) || fake_word(variable, key, 1, &value) ? value : fallback;
}

void fake_open(const char *file) {
	char path[4096];
	fake_path(file, path, sizeof path);
	// Never closed: the end of the process does.
	int opened = open(path, O_RDONLY | O_CLOEXEC);
	if (opened >= 0) {
		flock(opened, LOCK_SH);
	}
}

// fake_announce makes the file that tells a test that the process hangs.
static void fake_announce(void) {
	char path[MAX_WORDS];
	if (fake_words("FAKE_HANGS", path, sizeof path)) {
		path[strcspn(path, SPACE)] = 0;
		close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	}
}

int fake_fault(const char *variable, const char *function, int gpu) {
	long value, on;
	char key[128];
	if (gpu >= 0 && fake_word(variable, "on", 0, &on) && on != gpu) {
		return 0;
	}
	snprintf(key, sizeof key, "hang:%s", function);
	while (fake_word(variable, key, 0, &value)) {
		fake_announce();
		pause();
	}
	snprintf(key, sizeof key, "crash:%s", function);
	if (fake_word(variable, key, 0, &value)) {
		signal(SIGSEGV, SIG_DFL);
		raise(SIGSEGV);
	}
	snprintf(key, sizeof key, "%s@%d", function, gpu);
	return fake_word(variable, key, 999, &value) || fake_word(variable, function, 999, &value) ? (int)value : 0;
}
