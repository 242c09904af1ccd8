/* What the training thread does in every step, in C: marks, and records packed into slots of the ring.
 *
 * Optional: `spine/hot.py` and `spine/slots.py` do the same in Python where this was not built, byte for byte
 * (tests/unit/spine/test_hot.py). It is no other way of doing things but fewer things that are touched: after a
 * step of a model no code and no data of ours is in a cache, and each line costs a trip to memory (docs/operations.md).
 *
 * Nothing here waits, prints or keeps a reference to the ring's memory. A value that does not fit is an
 * exception, as in Python, and then no byte of the slot has changed.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if !defined(__linux__)
#error "time.perf_counter_ns reads CLOCK_MONOTONIC on Linux; elsewhere plain Python does the work"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a slot is little-endian, and this code copies integers as they are; plain Python does the work"
#endif
#ifdef Py_GIL_DISABLED
#error "Stamp and Marks rely on the interpreter lock; plain Python does the work"
#endif
#ifndef VERSION
#error "setup.py defines VERSION"
#endif

enum { SLOT_BYTES = 256, CRC_BYTES = 4, PREFIX_BYTES = 12, INTEGER_BYTES = 8, WIDE_BYTES = 16, MAX_FIELDS = 256 };

/* ---- CRC-32 as zlib's, four bytes at a time by tables of half bytes: 512 bytes of tables, eight cache lines,
 * which are read independently of each other. One table of whole bytes has twice as many lines, zlib's forty times. */

static _Alignas(64) uint32_t crc_tables[8][16]; /* [k][n]: half byte n, with k more of them shifted in behind it */

static void make_crc_tables(void)
{
    for (uint32_t n = 0; n < 16; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 4; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        crc_tables[0][n] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int n = 0; n < 16; n++) {
            uint32_t crc = crc_tables[k - 1][n];
            crc_tables[k][n] = crc >> 4 ^ crc_tables[0][crc & 15];
        }
}

static uint32_t crc32_of(const unsigned char *bytes, Py_ssize_t count)
{
    uint32_t crc = ~0u;
    for (; count >= 4; bytes += 4, count -= 4) {
        uint32_t word;
        memcpy(&word, bytes, 4);
        crc ^= word;
        crc = crc_tables[7][crc & 15] ^ crc_tables[6][crc >> 4 & 15] ^ crc_tables[5][crc >> 8 & 15]
            ^ crc_tables[4][crc >> 12 & 15] ^ crc_tables[3][crc >> 16 & 15] ^ crc_tables[2][crc >> 20 & 15]
            ^ crc_tables[1][crc >> 24 & 15] ^ crc_tables[0][crc >> 28];
    }
    for (; count > 0; bytes++, count--) {
        crc ^= *bytes;
        crc = crc >> 4 ^ crc_tables[0][crc & 15];
        crc = crc >> 4 ^ crc_tables[0][crc & 15];
    }
    return ~crc;
}

/* ---- Packer: one type's records into slots. */

typedef struct {
    char kind; /* as `spine.slots.Layout` gives it: an integer, optional, wide, a text, or the many at the end */
    unsigned char size;
} Field;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    unsigned char slot;
    Py_ssize_t count;
    Field fields[MAX_FIELDS];
} Packer;

static int put_integer(unsigned char *at, PyObject *value)
{
    int overflow; /* -1 and an exception also for what has no __index__ */
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow)
        PyErr_SetString(PyExc_OverflowError, "an integer of a record needs more than 64 bits");
    if (number == -1 && PyErr_Occurred())
        return -1;
    memcpy(at, &number, INTEGER_BYTES);
    return 0;
}

static int put_wide(unsigned char *at, PyObject *value)
{
    uint64_t words[2] = {0, 1ull << 63}; /* None */
    if (value != Py_None) {
        if (!PyLong_Check(value)) {
            PyErr_SetString(PyExc_TypeError, "a wide integer of a record is no int");
            return -1;
        }
        int overflow;
        long long low = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (low == -1 && PyErr_Occurred())
            return -1;
        words[0] = (uint64_t)low;
        words[1] = low < 0 ? ~0ull : 0;
        if (overflow) {
            PyObject *bits = PyLong_FromLong(64);
            PyObject *high = bits == NULL ? NULL : PyNumber_Rshift(value, bits);
            Py_XDECREF(bits);
            if (high == NULL)
                return -1;
            words[0] = PyLong_AsUnsignedLongLongMask(value);
            int failed = put_integer((unsigned char *)&words[1], high);
            Py_DECREF(high);
            if (failed)
                return -1;
        }
    }
    memcpy(at, words, WIDE_BYTES);
    return 0;
}

/* As many characters as fit, whole ones, and NUL behind them. */
static int put_text(unsigned char *at, Py_ssize_t size, PyObject *value)
{
    if (PyUnicode_CheckExact(value) && PyUnicode_IS_COMPACT_ASCII(value)) { /* as nearly all are: nothing to encode */
        Py_ssize_t length = PyUnicode_GET_LENGTH(value) < size ? PyUnicode_GET_LENGTH(value) : size;
        memcpy(at, PyUnicode_DATA(value), length);
        memset(at + length, 0, size - length);
        return 0;
    }
    PyObject *text = PyObject_Str(value);
    PyObject *encoded = text == NULL ? NULL : PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    Py_XDECREF(text);
    if (encoded == NULL)
        return -1;
    const char *bytes = PyBytes_AS_STRING(encoded);
    Py_ssize_t count = PyBytes_GET_SIZE(encoded);
    if (count > size)
        for (count = size; count > 0 && ((unsigned char)bytes[count] & 0xC0) == 0x80;)
            count--;
    memcpy(at, bytes, count);
    memset(at + count, 0, size - count);
    Py_DECREF(encoded);
    return 0;
}

/* Returns how many bytes the integers take, -1 where they do not fit into `room`. */
static Py_ssize_t put_many(unsigned char *at, Py_ssize_t room, PyObject *values)
{
    Py_ssize_t count = PyObject_Size(values); /* asked first: an iterator may have no end */
    if (count < 0)
        return -1;
    if (count > room / INTEGER_BYTES) {
        PyErr_SetString(PyExc_IndexError, "more integers than a slot has room for");
        return -1;
    }
    PyObject *held = PySequence_Tuple(values); /* a list could change while its items are converted */
    if (held == NULL)
        return -1;
    int failed = PyTuple_GET_SIZE(held) != count;
    if (failed)
        PyErr_SetString(PyExc_TypeError, "the integers of a record are not as many as they say");
    for (Py_ssize_t i = 0; i < count && !failed; i++)
        failed = put_integer(at + i * INTEGER_BYTES, PyTuple_GET_ITEM(held, i));
    Py_DECREF(held);
    return failed ? -1 : count * INTEGER_BYTES;
}

/* The record behind the prefix; returns how many bytes it takes, -1 for an exception. Values can run Python code
 * (__index__, __str__), hence into a buffer of our own and not into the ring. */
static Py_ssize_t put_fields(const Packer *self, unsigned char *slot, PyObject *record)
{
    if (!PyTuple_Check(record) || PyTuple_GET_SIZE(record) != self->count) {
        PyErr_SetString(PyExc_TypeError, "no record of this type");
        return -1;
    }
    unsigned char *at = slot + CRC_BYTES + PREFIX_BYTES;
    const unsigned char *begin = at, *end = slot + SLOT_BYTES;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Field *field = &self->fields[i];
        PyObject *value = PyTuple_GET_ITEM(record, i);
        Py_ssize_t size = field->size;
        int failed = 0;
        switch (field->kind) {
        case 'o':
            if (value == Py_None) {
                const int64_t none = INT64_MIN;
                memcpy(at, &none, INTEGER_BYTES);
                break;
            } /* fall through */
        case 'i':
            failed = put_integer(at, value);
            break;
        case 'w':
            failed = put_wide(at, value);
            break;
        case 's':
            failed = put_text(at, size, value);
            break;
        default:
            size = put_many(at, end - at, value);
            failed = size < 0;
        }
        if (failed)
            return -1;
        at += size;
    }
    return at - begin;
}

/* Completes the slot by its prefix and checksum, and stores it. */
static void write_slot(unsigned char *at, unsigned char *slot, unsigned char kind, Py_ssize_t size, uint64_t sequence)
{
    uint16_t length = (uint16_t)size;
    slot[CRC_BYTES] = kind;
    slot[CRC_BYTES + 1] = 0;
    memcpy(slot + CRC_BYTES + 2, &length, 2);
    memcpy(slot + CRC_BYTES + 4, &sequence, 8);
    size += PREFIX_BYTES;
    uint32_t crc = crc32_of(slot + CRC_BYTES, size);
    memcpy(at + CRC_BYTES, slot + CRC_BYTES, size);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the slot is there once its checksum is, and not before */
    memcpy(at, &crc, CRC_BYTES);
}

/* packer(memory, offset, sequence, record) */
static PyObject *packer_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *keywords)
{
    const Packer *self = (const Packer *)callable;
    if (PyVectorcall_NARGS(flags) != 4 || (keywords != NULL && PyTuple_GET_SIZE(keywords))) {
        PyErr_SetString(PyExc_TypeError, "a packer takes memory, offset, sequence number and record");
        return NULL;
    }
    _Alignas(8) unsigned char slot[SLOT_BYTES];
    Py_ssize_t offset = PyLong_AsSsize_t(args[1]);
    if (offset == -1 && PyErr_Occurred())
        return NULL;
    uint64_t sequence = PyLong_AsUnsignedLongLong(args[2]);
    if (sequence == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t size = put_fields(self, slot, args[3]);
    if (size < 0)
        return NULL;
    Py_buffer memory; /* of a ring that is released: ValueError */
    if (PyObject_GetBuffer(args[0], &memory, PyBUF_WRITABLE))
        return NULL;
    int fits = offset >= 0 && offset <= memory.len - CRC_BYTES - PREFIX_BYTES - size;
    if (fits)
        write_slot((unsigned char *)memory.buf + offset, slot, self->slot, size, sequence);
    PyBuffer_Release(&memory);
    if (!fits) {
        PyErr_SetString(PyExc_IndexError, "the slot is outside of the memory");
        return NULL;
    }
    Py_RETURN_NONE;
}

static int packer_field(Packer *self, PyObject *given)
{
    const char *kind;
    Py_ssize_t size, length;
    if (!PyArg_ParseTuple(given, "s#n;a field is its kind and its size", &kind, &length, &size))
        return -1;
    int is_known = length == 1 && strchr("iowst", *kind) != NULL;
    int is_sized = *kind == 'w' ? size == WIDE_BYTES : *kind == 't' ? size == 0 : *kind == 's' || size == INTEGER_BYTES;
    int has_ended = self->count && self->fields[self->count - 1].kind == 't';
    if (!is_known || !is_sized || has_ended || size < 0 || size > SLOT_BYTES - 1 || self->count >= MAX_FIELDS) {
        PyErr_SetString(PyExc_ValueError, "a field that cannot be packed");
        return -1;
    }
    self->fields[self->count++] = (Field){*kind, (unsigned char)size};
    return 0;
}

static PyObject *packer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    unsigned char slot;
    PyObject *given;
    static char *names[] = {"slot", "fields", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "bO", names, &slot, &given))
        return NULL;
    PyObject *fields = PySequence_Tuple(given);
    if (fields == NULL)
        return NULL;
    Packer *self = (Packer *)type->tp_alloc(type, 0);
    int failed = self == NULL;
    Py_ssize_t total = CRC_BYTES + PREFIX_BYTES;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(fields); i++) {
        PyObject *field = PyTuple_GET_ITEM(fields, i);
        if (!PyTuple_Check(field)) {
            PyErr_SetString(PyExc_TypeError, "a field is its kind and its size");
            failed = 1;
        } else {
            failed = packer_field(self, field);
            total += failed ? 0 : self->fields[i].size;
        }
    }
    Py_DECREF(fields);
    if (!failed && total > SLOT_BYTES) {
        PyErr_SetString(PyExc_ValueError, "the fields take more than a slot");
        failed = 1;
    }
    if (failed) {
        Py_XDECREF(self);
        return NULL;
    }
    self->vectorcall = packer_call;
    self->slot = slot;
    return (PyObject *)self;
}

static PyTypeObject packer_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "flagscale_perf.spine._hot.Packer",
    .tp_doc = "Packer(slot, fields): (memory, offset, sequence, record) -> None; see `slots.Layout.packer`.",
    .tp_basicsize = sizeof(Packer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Packer, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = packer_new,
};

/* ---- Marks: integers of one step, in memory that is there from the start. */

typedef struct {
    PyObject_HEAD
    Py_ssize_t count, room;
    int64_t *held;
} Marks;

static inline void keep(Marks *self, int64_t mark)
{
    if (self->count < self->room)
        self->held[self->count++] = mark;
}

static PyObject *marks_add(PyObject *self, PyObject *mark)
{
    int64_t number;
    if (put_integer((unsigned char *)&number, mark))
        return NULL;
    keep((Marks *)self, number);
    Py_RETURN_NONE;
}

static PyObject *marks_clear(PyObject *self, PyObject *none)
{
    ((Marks *)self)->count = 0;
    Py_RETURN_NONE;
}

static PyObject *marks_take(PyObject *object, PyObject *none)
{
    Marks *self = (Marks *)object;
    Py_ssize_t count = self->count; /* making integers can run the garbage collection, and that anything */
    PyObject *taken = PyTuple_New(count);
    for (Py_ssize_t i = 0; taken != NULL && i < count; i++) {
        PyObject *mark = PyLong_FromLongLong(self->held[i]);
        if (mark == NULL)
            Py_CLEAR(taken);
        else
            PyTuple_SET_ITEM(taken, i, mark);
    }
    return taken;
}

static PyObject *marks_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Py_ssize_t room;
    static char *names[] = {"room", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "n", names, &room))
        return NULL;
    if (room < 1) {
        PyErr_SetString(PyExc_ValueError, "marks need room");
        return NULL;
    }
    Marks *self = (Marks *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->held = PyMem_New(int64_t, room);
    if (self->held == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->room = room;
    return (PyObject *)self;
}

static void marks_dealloc(PyObject *self)
{
    PyMem_Free(((Marks *)self)->held);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef marks_methods[] = {
    {"add", marks_add, METH_O, "Keeps one more mark, where there is room."},
    {"clear", marks_clear, METH_NOARGS, "Forgets the marks."},
    {"take", marks_take, METH_NOARGS, "The marks, as a tuple."},
    {NULL},
};

static PyTypeObject marks_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "flagscale_perf.spine._hot.Marks",
    .tp_doc = "Marks(room): see `hot.Marks`.",
    .tp_basicsize = sizeof(Marks),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = marks_methods,
    .tp_new = marks_new,
    .tp_dealloc = marks_dealloc,
};

/* ---- Stamp: start or stop of a timer, which takes a mark. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *taker;
    int64_t code; /* added to the clock's reading */
} Stamp;

static PyObject *name_mark, *name_phase_failed, *name_barrier;

#if PY_VERSION_HEX < 0x030B0000 /* 3.10 keeps what is being handled as three parts */
static PyObject *PyErr_GetHandledException(void)
{
    PyObject *type, *error, *traceback;
    PyErr_GetExcInfo(&type, &error, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
}

static void PyErr_SetHandledException(PyObject *error)
{
    if (error == NULL || error == Py_None) {
        PyErr_SetExcInfo(NULL, NULL, NULL);
        return;
    }
    PyObject *type = (PyObject *)Py_TYPE(error);
    Py_INCREF(type);
    Py_INCREF(error);
    PyErr_SetExcInfo(type, error, PyException_GetTraceback(error));
}
#endif

/* What taking a mark has raised, to `taker.phase_failed`, while it counts as being handled, as in an `except`. */
static PyObject *stamp_failed(Stamp *self)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    PyObject *handled = PyErr_GetHandledException();
    PyErr_SetHandledException(error);
    PyObject *result = PyObject_CallMethodOneArg(self->taker, name_phase_failed, error);
    PyErr_SetHandledException(handled);
    Py_XDECREF(handled);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return result;
}

static int first_is(PyObject *keywords, PyObject *name)
{
    PyObject *first = PyTuple_GET_ITEM(keywords, 0);
    return first == name || PyUnicode_Compare(first, name) == 0;
}

static int take_mark(Stamp *self, PyObject *mark)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t stamped = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + (uint64_t)self->code;
    if (PyCFunction_CheckExact(mark) && ((PyCFunctionObject *)mark)->m_ml == marks_methods) {
        keep((Marks *)PyCFunction_GET_SELF(mark), (int64_t)stamped); /* marks_methods[0] is `add` */
        return 0;
    } /* else a device's timeline, or what a test puts there */
    PyObject *number = PyLong_FromLongLong((int64_t)stamped);
    PyObject *result = number == NULL ? NULL : PyObject_CallOneArg(mark, number);
    Py_XDECREF(number);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* stamp(barrier=False) */
static PyObject *stamp_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *keywords)
{
    Stamp *self = (Stamp *)callable;
    Py_ssize_t named = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);
    if (PyVectorcall_NARGS(flags) + named > 1 || (named && !first_is(keywords, name_barrier))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a timer's start and stop take nothing but barrier");
        return NULL;
    }
    PyObject *mark = PyObject_GetAttr(self->taker, name_mark);
    if (mark == NULL)
        return NULL;
    int failed = mark != Py_None && take_mark(self, mark);
    Py_DECREF(mark);
    if (failed) {
        PyObject *result = stamp_failed(self);
        if (result == NULL)
            return NULL;
        Py_DECREF(result);
    }
    Py_RETURN_NONE;
}

static PyObject *stamp_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *taker;
    long long code;
    static char *names[] = {"taker", "code", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OL", names, &taker, &code))
        return NULL;
    Stamp *self = (Stamp *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = stamp_call;
    self->taker = Py_NewRef(taker);
    self->code = code;
    return (PyObject *)self;
}

static int stamp_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Stamp *)self)->taker);
    return 0;
}

static int stamp_clear(PyObject *self)
{
    Py_SETREF(((Stamp *)self)->taker, Py_NewRef(Py_None));
    return 0;
}

static void stamp_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(((Stamp *)self)->taker);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject stamp_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "flagscale_perf.spine._hot.Stamp",
    .tp_doc = "Stamp(taker, code): (barrier=False) -> None, as start and stop in `hosts.timers`.",
    .tp_basicsize = sizeof(Stamp),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Stamp, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = stamp_new,
    .tp_traverse = stamp_traverse,
    .tp_clear = stamp_clear,
    .tp_dealloc = stamp_dealloc,
};

/* ---- The module. */

static int execute(PyObject *module)
{
    make_crc_tables();
    name_mark = PyUnicode_InternFromString("mark");
    name_phase_failed = PyUnicode_InternFromString("phase_failed");
    name_barrier = PyUnicode_InternFromString("barrier");
    if (name_mark == NULL || name_phase_failed == NULL || name_barrier == NULL)
        return -1;
    return PyModule_AddStringConstant(module, "VERSION", VERSION) || PyModule_AddType(module, &packer_type)
        || PyModule_AddType(module, &marks_type) || PyModule_AddType(module, &stamp_type)
        ? -1
        : 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_hot",
    .m_doc = "The hot path in C; `spine.hot` says when it is used.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__hot(void)
{
    return PyModuleDef_Init(&module_definition);
}
