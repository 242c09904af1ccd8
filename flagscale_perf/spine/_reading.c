/* Lines of a run file into columns, in C: what `spine/reading.py` does in Python where this was not built.
 *
 * It reads lines exactly as `spine/jsonl.py` writes them, keys in order and nothing between them, and stops before the
 * first that differs, be it right or wrong: that one is for Python. So nothing here says what is wrong with a line, and
 * whatever it takes, Python would take as well (tests/unit/spine/test_reading.py).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#ifndef VERSION
#error "setup.py defines VERSION"
#endif

/* What a field may hold; WIDE is an integer of more than MAX_DIGITS digits. */
enum { INTEGER = 1, NONE = 2, TEXT = 4, WIDE = 8 };
/* Fewer digits than 2^63 and 2^127 have; characters of a text as in jsonl.MAX_TEXT. */
enum { MAX_FIELDS = 64, MAX_DIGITS = 18, MAX_WIDE_DIGITS = 38 - 1, MAX_TEXT = 2048 };

typedef struct {
    const char *key;
    Py_ssize_t key_size;
    int allowed;
    const char *text; /* of the last value, which lies in the same data */
    Py_ssize_t text_size;
    PyObject *last; /* borrowed from the column */
} Field;

/* Both return the place behind the value; NULL for what is none, with an exception only where memory is lacking. */

static const char *take_integer(const char *at, const char *end, int allowed, PyObject **value)
{
    const char *begin = at;
    int is_negative = at < end && *at == '-';
    at += is_negative;
    const char *digits = at;
    uint64_t number = 0;
    for (; at < end && *at >= '0' && *at <= '9' && at - digits <= MAX_WIDE_DIGITS; at++)
        if (at - digits < MAX_DIGITS)
            number = 10 * number + (uint64_t)(*at - '0');
    Py_ssize_t count = at - digits;
    if (count == 0 || (count > 1 && *digits == '0'))
        return NULL;
    if (count <= MAX_DIGITS) {
        *value = PyLong_FromLongLong(is_negative ? -(int64_t)number : (int64_t)number);
    } else {
        char copy[MAX_WIDE_DIGITS + 2];
        if (!(allowed & WIDE) || count > MAX_WIDE_DIGITS)
            return NULL;
        memcpy(copy, begin, at - begin);
        copy[at - begin] = 0;
        *value = PyLong_FromString(copy, NULL, 10);
    }
    return *value == NULL ? NULL : at;
}

static const char *take_text(const char *at, const char *end, Field *field, PyObject **value)
{
    const char *begin = ++at;
    for (; at < end && *at != '"'; at++)
        if (*at < ' ' || *at > '~' || *at == '\\')
            return NULL; /* also what is no ASCII, as char may be signed or not */
    Py_ssize_t size = at - begin;
    if (at == end || size > MAX_TEXT)
        return NULL;
    if (field->last != NULL && size == field->text_size && memcmp(begin, field->text, size) == 0) {
        *value = Py_NewRef(field->last);
    } else {
        *value = PyUnicode_DecodeASCII(begin, size, NULL);
        field->text = begin;
        field->text_size = size;
        field->last = *value;
    }
    return *value == NULL ? NULL : at + 1;
}

static const char *take_value(const char *at, const char *end, Field *field, PyObject **value)
{
    if (end - at < field->key_size || memcmp(at, field->key, field->key_size) != 0)
        return NULL;
    at += field->key_size;
    if (at == end)
        return NULL;
    if (*at == '"')
        return field->allowed & TEXT ? take_text(at, end, field, value) : NULL;
    if (*at == 'n') {
        if (!(field->allowed & NONE) || end - at < 4 || memcmp(at, "null", 4) != 0)
            return NULL;
        *value = Py_NewRef(Py_None);
        return at + 4;
    }
    return field->allowed & INTEGER ? take_integer(at, end, field->allowed, value) : NULL;
}

/* The next line's values; the place behind it, NULL where it is not one of ours. */
static const char *take_line(const char *at, const char *end, Field *fields, Py_ssize_t count, PyObject **values)
{
    Py_ssize_t taken = 0;
    while (at != NULL && taken < count) {
        at = take_value(at, end, &fields[taken], &values[taken]);
        taken += at != NULL;
    }
    if (at != NULL && end - at >= 2 && at[0] == '}' && at[1] == '\n')
        return at + 2;
    while (taken > 0)
        Py_DECREF(values[--taken]);
    return NULL;
}

static int append(PyObject *columns, PyObject **values, Py_ssize_t count)
{
    int failed = 0;
    for (Py_ssize_t i = 0; i < count; i++) { /* all of them, as they are to be given back */
        failed |= PyList_Append(PyTuple_GET_ITEM(columns, i), values[i]);
        Py_DECREF(values[i]);
    }
    return failed;
}

/* Fills `fields`; -1 with an exception. */
static int read_fields(PyObject *keys, const char *allowed, Py_ssize_t count, Field *fields)
{
    if (count < 1 || count > MAX_FIELDS || PyTuple_GET_SIZE(keys) != count) {
        PyErr_SetString(PyExc_ValueError, "1 to 64 keys, and as many bytes that say what their values may be");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        char *key;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(keys, i), &key, &size))
            return -1;
        fields[i] = (Field){key, size, allowed[i], NULL, 0, NULL};
    }
    return 0;
}

static PyObject *new_columns(Py_ssize_t count)
{
    PyObject *columns = PyTuple_New(count);
    for (Py_ssize_t i = 0; columns != NULL && i < count; i++) {
        PyObject *column = PyList_New(0);
        if (column == NULL)
            Py_CLEAR(columns);
        else
            PyTuple_SET_ITEM(columns, i, column);
    }
    return columns;
}

/* take_columns(data, start, keys, allowed) */
static PyObject *take_columns(PyObject *module, PyObject *args)
{
    PyObject *data, *keys;
    Py_ssize_t start, count;
    const char *allowed;
    if (!PyArg_ParseTuple(args, "SnO!y#", &data, &start, &PyTuple_Type, &keys, &allowed, &count))
        return NULL;
    Field fields[MAX_FIELDS];
    PyObject *values[MAX_FIELDS];
    if (read_fields(keys, allowed, count, fields))
        return NULL;
    if (start < 0 || start > PyBytes_GET_SIZE(data)) {
        PyErr_SetString(PyExc_IndexError, "the start is outside of the data");
        return NULL;
    }
    PyObject *columns = new_columns(count);
    if (columns == NULL)
        return NULL;
    const char *begin = PyBytes_AS_STRING(data), *end = begin + PyBytes_GET_SIZE(data), *at = begin + start;
    int failed = 0;
    while (!failed) {
        const char *behind = take_line(at, end, fields, count, values);
        if (behind == NULL)
            break;
        at = behind;
        failed = append(columns, values, count);
    }
    if (failed || PyErr_Occurred()) {
        Py_DECREF(columns);
        return NULL;
    }
    return Py_BuildValue("nN", (Py_ssize_t)(at - begin), columns);
}

static PyMethodDef methods[] = {
    {"take_columns", take_columns, METH_VARARGS, "The lines from `start` on: the place behind them, and their values."},
    {NULL},
};

static int execute(PyObject *module)
{
    return PyModule_AddStringConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_reading",
    .m_doc = "Lines of a run file into columns; `spine.reading` says when it is used.",
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__reading(void)
{
    return PyModuleDef_Init(&module_definition);
}
