/* A driver's library with one device, GPU-1; FAKE_NVML says what is wrong with it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMED_OUT = 10, LOST = 15, MISMATCH = 18 };

static int is(const char *mode) {
    const char *set = getenv("FAKE_NVML");
    return set && !strcmp(set, mode);
}

static void hang(void) {
    for (;;) pause();
}

static int give(unsigned *out, unsigned value) {
    if (is("lost")) return LOST;
    *out = is("lying") ? UINT32_MAX : value;
    return OK;
}

static int give64(uint64_t *out, uint64_t value) {
    if (is("lost")) return LOST;
    *out = is("lying") ? UINT64_MAX : value;
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (is("hang")) hang();
    return is("mismatch") ? MISMATCH : OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    static int slice = 1, whole = 2;
    *device = !strcmp(uuid, "GPU-1") ? &whole : !strcmp(uuid, "MIG-2") ? &slice : 0;
    return *device ? OK : NOT_FOUND;
}

int nvmlDeviceGetPowerUsage(int *device, unsigned *out) {
    if (is("crash")) abort();
    if (is("hang later")) hang();
    if (*device == 1) return NOT_SUPPORTED;
    return give(out, is("watts") ? 300 : 300000);
}

/* 300 W since the machine's start */
int nvmlDeviceGetTotalEnergyConsumption(int *device, uint64_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t millijoules = (now.tv_sec * 1000ull + now.tv_nsec / 1000000) * 300;
    if (*device == 1) return NOT_SUPPORTED;
    return give64(out, is("watts") ? millijoules / 1000 : millijoules);
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *out) { return (void)device, give(out, kind == 1 ? 1980 : 3201); }
int nvmlDeviceGetTemperature(void *device, int kind, unsigned *out) { return (void)device, (void)kind, give(out, 61); }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *out) { return (void)device, give(out, 5); }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *out) { return (void)device, give(out, 16); }
int nvmlDeviceGetPcieReplayCounter(void *device, unsigned *out) { return (void)device, give(out, 3); }

#ifndef OLD
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, uint64_t *out) {
    return (void)device, (void)kind, (void)counter, give64(out, 0);
}
int nvmlDeviceGetCurrentClocksEventReasons(void *device, uint64_t *out) {
    return (void)device, give64(out, is("throttled") ? 0x4 | 0x40 | 0x4000 : 0);
}
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out) {
    (void)device;
    if (link >= 18) return NOT_SUPPORTED;
    return give(out, link != 7);
}

struct event {
    void *device;
    uint64_t type, data;
};

int nvmlEventSetCreate(void **set) { return *set = "set", OK; }
int nvmlEventSetFree(void *set) { return (void)set, OK; }
int nvmlDeviceRegisterEvents(void *device, uint64_t types, void *set) {
    return (void)device, (void)types, (void)set, is("no events") ? NOT_SUPPORTED : OK;
}
int nvmlEventSetWait_v2(void *set, struct event *out, unsigned timeout_ms) {
    static int waiting = 2;
    (void)set;
    if (timeout_ms) hang();
    if (!is("xid") || !waiting) return TIMED_OUT;
    out->data = waiting-- == 2 ? 63 : 79;
    return OK;
}
#else
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, uint64_t *out) { return (void)device, give64(out, 0x1); }
#endif
