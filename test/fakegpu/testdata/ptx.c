#define _GNU_SOURCE
#include "ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 128, MAX_PARAMS = 8, MAX_REGISTERS = 32, WORDS = 6, WORD = 48 };

struct line {
	int count;
	char word[WORDS][WORD]; // The instruction and its operands; a predicate "@%p" comes first.
};

struct ptx {
	char entry[WORD];
	int params, lines;
	char param[MAX_PARAMS][WORD];
	int param_size[MAX_PARAMS];
	struct line line[MAX_LINES];
};

// A thread: registers by class (r, d for %rd, f, p) and number.
struct thread {
	uint64_t b64[MAX_REGISTERS];
	uint32_t b32[MAX_REGISTERS];
	float f32[MAX_REGISTERS];
	int pred[MAX_REGISTERS];
};

static int split(const char *text, struct line *line) {
	char copy[256];
	snprintf(copy, sizeof copy, "%s", text);
	line->count = 0;
	for (char *rest, *word = strtok_r(copy, " \t,;[]()", &rest); word; word = strtok_r(NULL, " \t,;[]()", &rest)) {
		if (line->count == WORDS || strlen(word) >= WORD) {
			return 0;
		}
		strcpy(line->word[line->count++], word);
	}
	return 1;
}

// declaration reads what comes before the instructions; returns whether the line was one.
static int declaration(struct ptx *p, const struct line *line, int *wrong) {
	const char *first = line->word[0];
	if (first[0] != '.' && first[0] != '{' && first[0] != '}') {
		return 0;
	}
	if (strcmp(first, ".version") == 0 && atof(line->word[1]) > 8.0) {
		*wrong = 222;
	} else if (strcmp(first, ".address_size") == 0 && strcmp(line->word[1], "64") != 0) {
		*wrong = 218;
	} else if (strcmp(first, ".visible") == 0 && line->count == 3 && strcmp(line->word[1], ".entry") == 0) {
		strcpy(p->entry, line->word[2]);
	} else if (strcmp(first, ".param") == 0 && line->count == 3 && p->params < MAX_PARAMS) {
		p->param_size[p->params] = strcmp(line->word[1], ".u64") == 0 ? 8 : 4;
		strcpy(p->param[p->params++], line->word[2]);
	}
	return 1;
}

struct ptx *ptx_parse(const char *text, char *log, size_t size) {
	struct ptx *p = calloc(1, sizeof *p);
	char *copy = strdup(text), *rest;
	int number = 0, wrong = 0;
	for (char *at = strtok_r(copy, "\n", &rest); at && !wrong; at = strtok_r(NULL, "\n", &rest)) {
		struct line line;
		char *comment = strstr(at, "//");
		number++;
		if (comment) {
			*comment = 0;
		}
		if (!split(at, &line) || p->lines == MAX_LINES) {
			wrong = 218;
		} else if (line.count > 0 && !declaration(p, &line, &wrong)) {
			p->line[p->lines++] = line;
		}
	}
	free(copy);
	if (wrong || p->entry[0] == 0) {
		snprintf(log, size, "ptx input, line %d; fatal: this cannot be compiled\nand more", number);
		free(p);
		return NULL;
	}
	return p;
}

int ptx_has_entry(const struct ptx *p, const char *name) { return strcmp(p->entry, name) == 0; }

// number of a register of the class, such as 4 for %rd4 of "%rd"; -1 if word is none of it.
static int reg(const char *word, const char *class) {
	size_t length = strlen(class);
	if (strncmp(word, class, length) != 0 || word[length] < '0' || word[length] > '9') {
		return -1;
	}
	int n = atoi(word + length);
	return n < MAX_REGISTERS ? n : -1;
}

static int param(const struct ptx *p, const char *name, int bytes) {
	for (int i = 0; i < p->params; i++) {
		if (strcmp(p->param[i], name) == 0 && p->param_size[i] == bytes) {
			return i;
		}
	}
	return -1;
}

static int special(const char *name, uint32_t block, uint32_t width, uint32_t thread, uint32_t *value) {
	if (strcmp(name, "%ctaid.x") == 0) {
		*value = block;
	} else if (strcmp(name, "%ntid.x") == 0) {
		*value = width;
	} else if (strcmp(name, "%tid.x") == 0) {
		*value = thread;
	} else {
		return 0;
	}
	return 1;
}

// compute carries out the instructions on registers alone; returns whether the line is one.
static int compute(struct thread *t, const struct line *l) {
	const char *op = l->word[0];
	int r[4], d[4], f[4];
	for (int i = 1; i < 4; i++) {
		r[i] = reg(l->word[i], "%r"), d[i] = reg(l->word[i], "%rd"), f[i] = reg(l->word[i], "%f");
	}
	if (strcmp(op, "mad.lo.u32") == 0 && l->count == 5 && r[1] >= 0 && r[2] >= 0 && r[3] >= 0) {
		int addend = reg(l->word[4], "%r");
		t->b32[r[1]] = t->b32[r[2]] * t->b32[r[3]] + (addend < 0 ? 0 : t->b32[addend]);
	} else if (strcmp(op, "setp.ge.u32") == 0 && reg(l->word[1], "%p") >= 0 && r[2] >= 0 && r[3] >= 0) {
		t->pred[reg(l->word[1], "%p")] = t->b32[r[2]] >= t->b32[r[3]];
	} else if (strcmp(op, "cvta.to.global.u64") == 0 && d[1] >= 0 && d[2] >= 0) {
		t->b64[d[1]] = t->b64[d[2]];
	} else if (strcmp(op, "mul.wide.u32") == 0 && d[1] >= 0 && r[2] >= 0) {
		t->b64[d[1]] = (uint64_t)t->b32[r[2]] * strtoul(l->word[3], NULL, 10);
	} else if (strcmp(op, "add.s64") == 0 && d[1] >= 0 && d[2] >= 0 && d[3] >= 0) {
		t->b64[d[1]] = t->b64[d[2]] + t->b64[d[3]];
	} else if (strcmp(op, "add.rn.f32") == 0 && f[1] >= 0 && f[2] >= 0 && f[3] >= 0) {
		t->f32[f[1]] = t->f32[f[2]] + t->f32[f[3]];
	} else {
		return 0;
	}
	return 1;
}

// access carries out loads and stores; returns 0, 700, or 719 if the line is none.
static int access_memory(const struct ptx *p, struct thread *t, const struct line *l, void **arguments,
                         ptx_memory memory) {
	const char *op = l->word[0];
	int r = reg(l->word[1], "%r"), d = reg(l->word[1], "%rd"), f = reg(l->word[1], "%f");
	int load = strcmp(op, "ld.global.f32") == 0, store = strcmp(op, "st.global.f32") == 0;
	if (strcmp(op, "ld.param.u32") == 0 && r >= 0 && param(p, l->word[2], 4) >= 0) {
		memcpy(&t->b32[r], arguments[param(p, l->word[2], 4)], 4);
		return 0;
	}
	if (strcmp(op, "ld.param.u64") == 0 && d >= 0 && param(p, l->word[2], 8) >= 0) {
		memcpy(&t->b64[d], arguments[param(p, l->word[2], 8)], 8);
		return 0;
	}
	int address = reg(l->word[load ? 2 : 1], "%rd"), value = load ? f : reg(l->word[2], "%f");
	if ((!load && !store) || address < 0 || value < 0) {
		return 719;
	}
	void *at = memory(t->b64[address]);
	if (!at) {
		return 700;
	}
	memcpy(load ? (void *)&t->f32[value] : at, load ? at : (void *)&t->f32[value], 4);
	return 0;
}

static int find_label(const struct ptx *p, const char *label) {
	size_t length = strlen(label);
	for (int i = 0; i < p->lines; i++) {
		const char *word = p->line[i].word[0];
		if (strncmp(word, label, length) == 0 && word[length] == ':') {
			return i;
		}
	}
	return -1;
}

int ptx_run(const struct ptx *p, void **arguments, uint32_t block, uint32_t width, uint32_t thread,
            ptx_memory memory) {
	struct thread t;
	memset(&t, 0x5a, sizeof t); // A register that is read before it is written shows.
	for (int at = 0; at < p->lines; at++) {
		const struct line *l = &p->line[at];
		const char *op = l->word[0];
		if (strcmp(op, "ret") == 0) {
			return 0;
		}
		if (op[strlen(op) - 1] == ':') {
			continue;
		}
		if (op[0] == '@') {
			int pred = reg(op + 1, "%p"), target = l->count == 3 ? find_label(p, l->word[2]) : -1;
			if (pred < 0 || target < 0 || strcmp(l->word[1], "bra") != 0) {
				return 719;
			}
			at = t.pred[pred] ? target : at;
			continue;
		}
		int r = reg(l->word[1], "%r");
		if (strcmp(op, "mov.u32") == 0 && r >= 0 && special(l->word[2], block, width, thread, &t.b32[r])) {
			continue;
		}
		if (compute(&t, l)) {
			continue;
		}
		int code = access_memory(p, &t, l, arguments, memory);
		if (code) {
			return code;
		}
	}
	return 719; // It ends without ret.
}
