/* Lines into columns, in C: what `spine/reading.py` (lines of a run file) and `spine/text_lines.py` (lines of a log)
 * do in Python where this was not built.
 *
 * It reads lines of a run file exactly as `spine/jsonl.py` writes them, keys in order and nothing between them, and stops before the
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

/* What a field may hold; WIDE is an integer of more than MAX_DIGITS digits. Of a log's lines NONE is a field that may
 * be missing, FIGURE a decimal number, and what is LEFT_OUT has to be there and is not kept. */
enum { INTEGER = 1, NONE = 2, TEXT = 4, WIDE = 8, FIGURE = 16, LEFT_OUT = 32 };
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

/* ---- lines of a log ---- */

/* As in text_lines.py: digits of a figure before and behind its point, and of both together, which a double holds. */
enum { MAX_SHAPES = 16, MAX_WHOLE = 12, MAX_DECIMALS = 9, MAX_FIGURE = 15 };

typedef struct {
    const char *at; /* NULL: not there */
    Py_ssize_t size;
} Span;

/* One kind of line: its first field is what stands before `fields[0].key`, the others lie behind it. */
typedef struct {
    Py_ssize_t count;
    Field fields[MAX_FIELDS];
    PyObject *columns;
} Shape;

static const char *behind_digits(const char *at, const char *end, int most)
{
    const char *begin = at;
    while (at < end && at - begin < most && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* The place behind a value; `at` itself where there is none. */
static const char *behind_value(const char *at, const char *end, int allowed)
{
    const char *behind = at;
    if (allowed & TEXT) {
        while (behind < end && (unsigned char)*behind >= ' ' && *behind != '|' && *behind != '[')
            behind++;
        while (behind > at && behind[-1] == ' ') /* of the separator */
            behind--;
        return behind;
    }
    behind = behind_digits(at, end, MAX_WHOLE);
    if (behind == at || !(allowed & FIGURE) || end - behind < 2 || *behind != '.')
        return behind;
    const char *decimals = behind + 1;
    const char *last = behind_digits(decimals, end, MAX_DECIMALS);
    return last > decimals && last - at - 1 <= MAX_FIGURE ? last : at;
}

/* Whether only colours are left of the line. */
static int is_over(const char *at, const char *end)
{
    while (end - at > 2 && at[0] == '\x1b' && at[1] == '[') {
        for (at += 2; at < end && ((*at >= '0' && *at <= '9') || *at == ';'); at++)
            ;
        if (at == end || *at++ != 'm')
            return 0;
    }
    return at == end || (end - at == 1 && *at == '\r');
}

/* Whether what stands behind the mark is of this shape; where its values are. */
static int is_of(const char *at, const char *end, const Shape *shape, Span *spans)
{
    for (Py_ssize_t i = 1; i < shape->count; i++) {
        const Field *field = &shape->fields[i];
        if (end - at < field->key_size || memcmp(at, field->key, field->key_size) != 0) {
            if (!(field->allowed & NONE))
                return 0;
            spans[i].at = NULL;
            continue;
        }
        at += field->key_size;
        spans[i].at = at;
        if (field->allowed & (TEXT | INTEGER | FIGURE)) {
            const char *behind = behind_value(at, end, field->allowed);
            if (behind == at)
                return 0;
            spans[i].size = behind - at;
            at = behind;
        }
    }
    return is_over(at, end);
}

static PyObject *new_value(Field *field, Span span)
{
    static const double powers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    if (span.at == NULL)
        return Py_NewRef(Py_None);
    if (field->allowed & TEXT) {
        if (field->last == NULL || span.size != field->text_size || memcmp(span.at, field->text, span.size) != 0) {
            PyObject *made = PyBytes_FromStringAndSize(span.at, span.size);
            field->text = span.at;
            field->text_size = span.size;
            field->last = made; /* the column has it, too */
            return made;
        }
        return Py_NewRef(field->last);
    }
    int64_t number = 0;
    Py_ssize_t decimals = 0, is_behind = 0;
    for (Py_ssize_t i = 0; i < span.size; i++) {
        if (span.at[i] == '.') {
            is_behind = 1;
            continue;
        }
        number = 10 * number + (span.at[i] - '0');
        decimals += is_behind;
    }
    /* Both are exact in a double, so that their quotient is the number next to the text's, as Python has it. */
    return field->allowed & FIGURE ? PyFloat_FromDouble((double)number / powers[decimals]) : PyLong_FromLongLong(number);
}

static int keep_line(Shape *shape, const Span *spans)
{
    for (Py_ssize_t i = 0; i < shape->count; i++) {
        Field *field = &shape->fields[i];
        if (!(field->allowed & (TEXT | INTEGER | FIGURE)) || field->allowed & LEFT_OUT)
            continue;
        PyObject *value = new_value(field, spans[i]);
        int failed = value == NULL || PyList_Append(PyTuple_GET_ITEM(shape->columns, i), value);
        Py_XDECREF(value);
        if (failed)
            return -1;
    }
    return 0;
}

/* Fills `shapes`; how many there are, -1 with an exception. */
static Py_ssize_t read_shapes(PyObject *given, Shape *shapes)
{
    Py_ssize_t count = PyTuple_GET_SIZE(given);
    if (count > MAX_SHAPES) {
        PyErr_SetString(PyExc_ValueError, "at most 16 shapes");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *keys;
        const char *allowed;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, i), "O!y#", &PyTuple_Type, &keys, &allowed, &shapes[i].count) ||
            read_fields(keys, allowed, shapes[i].count, shapes[i].fields))
            return -1;
    }
    return count;
}

/* Puts the values of every line of one of the shapes into its columns; the others that have the mark go to `rest`, whose
 * end is returned, NULL with an exception. */
static char *sort_lines(const char *at, const char *end, const char *mark, Py_ssize_t mark_size, Shape *shapes,
                        Py_ssize_t count, char *rest)
{
    Span spans[MAX_FIELDS];
    const char *found;
    while ((found = memmem(at, end - at, mark, mark_size)) != NULL) {
        const char *begin = found, *stop = memchr(found, '\n', end - found);
        while (begin > at && begin[-1] != '\n')
            begin--;
        stop = stop == NULL ? end : stop;
        at = stop + (stop < end);
        Py_ssize_t taken = count;
        if (memmem(found + mark_size, stop - found - mark_size, mark, mark_size) == NULL)
            for (taken = 0; taken < count; taken++) {
                const Field *head = &shapes[taken].fields[0];
                spans[0] = (Span){begin, found - begin};
                if (stop - found >= head->key_size && memcmp(found, head->key, head->key_size) == 0 &&
                    is_of(found + head->key_size, stop, &shapes[taken], spans))
                    break;
            }
        if (taken == count) {
            memcpy(rest, begin, at - begin);
            rest += at - begin;
        } else if (keep_line(&shapes[taken], spans)) {
            return NULL;
        }
    }
    return rest;
}

/* take_text_lines(data, mark, shapes) */
static PyObject *take_text_lines(PyObject *module, PyObject *args)
{
    PyObject *data, *given, *rest, *made = NULL;
    const char *mark;
    Py_ssize_t mark_size;
    if (!PyArg_ParseTuple(args, "Sy#O!", &data, &mark, &mark_size, &PyTuple_Type, &given))
        return NULL;
    Shape *shapes = PyMem_Calloc(MAX_SHAPES, sizeof(Shape));
    Py_ssize_t count = shapes == NULL ? -1 : read_shapes(given, shapes), filled = 0;
    rest = count < 0 ? NULL : PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(data));
    PyObject *columns = rest == NULL ? NULL : PyTuple_New(count);
    for (; columns != NULL && filled < count; filled++) {
        shapes[filled].columns = new_columns(shapes[filled].count);
        if (shapes[filled].columns == NULL)
            break;
        PyTuple_SET_ITEM(columns, filled, shapes[filled].columns);
    }
    if (columns != NULL && filled == count) {
        const char *begin = PyBytes_AS_STRING(data);
        char *into = PyBytes_AS_STRING(rest);
        char *behind = sort_lines(begin, begin + PyBytes_GET_SIZE(data), mark, mark_size, shapes, count, into);
        if (behind != NULL && _PyBytes_Resize(&rest, behind - into) == 0)
            made = PyTuple_Pack(2, columns, rest);
    }
    PyMem_Free(shapes);
    Py_XDECREF(columns);
    Py_XDECREF(rest);
    return made != NULL || PyErr_Occurred() ? made : PyErr_NoMemory();
}

static PyMethodDef methods[] = {
    {"take_columns", take_columns, METH_VARARGS, "The lines from `start` on: the place behind them, and their values."},
    {"take_text_lines", take_text_lines, METH_VARARGS,
     "The values of lines that have the mark, by shape; and those of no shape, as they are."},
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
