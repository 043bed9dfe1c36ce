/* other_files.c: recognises model files of other programs: see other_files.h.
 *
 * Every function that opens a file (fx_load, fx_file_about, and therefore every command of cflux)
 * calls this file first, so that the same file always gets the same explanation. A file is
 * recognised by its first bytes. If its content is valid in a format of this library, that format
 * wins: a pickle, for example, may begin with the same bytes as a BSON document of 640 bytes. The
 * exception is a zip archive: it is always inspected, because npz is one too.
 */
#include "other_files.h"

#include <string.h>

#define JLD2     "JLD2, which only Julia reads; save in Julia with BSON.@save"
#define COMPRESS "compressed by "
#define EXPAND   ": decompress it first"
static const struct {
    const char *start;
    size_t size;
    const char *is;
} others[] = {
#define START(bytes) bytes, sizeof bytes - 1
    {START("7JL"), "written by Julia's Serialization, which only Julia reads; save in Julia with "
                   "BSON.@save"},
    {START("HDF5-based Julia Data Format"), JLD2},
    {START("\x89HDF"), "HDF5, which JLD2 and Keras write; save in Julia with BSON.@save, in Python "
                       "with safetensors.numpy.save_file"},
    {START("\x80\2"), "a pickle of Python (PyTorch before 1.6 wrote them), which only Python may "
                      "run; save in Python with safetensors.torch.save_file"},
    {START("\x80\4\x95"), "a pickle of Python, which only Python may run; save in Python with "
                          "safetensors"},
    {START("\x80\5\x95"), "a pickle of Python, which only Python may run; save in Python with "
                          "safetensors"},
    {START("GGUF"), "GGUF, the format of llama.cpp, which this library does not read"},
    {START("\x1f\x8b"), COMPRESS "gzip" EXPAND},
    {START("\x28\xb5\x2f\xfd"), COMPRESS "zstd" EXPAND},
    {START("\xfd"
           "7zXZ"),
     COMPRESS "xz" EXPAND},
    {START("BZh"), COMPRESS "bzip2" EXPAND},
    {START("Rar!"), "a RAR archive: extract its files first"},
    {START("7z\xbc\xaf"), "a 7z archive: extract its files first"},
};

/* Recognised by the name of the first file in a zip archive. */
static const struct {
    const char *end, *is;
} archives[] = {
    {"/data.pkl", "a file of PyTorch's torch.save, a pickle, which only Python may run; save in "
                  "Python with safetensors.torch.save_file"},
    {"metadata.json", "a model of Keras 3 (.keras); save its arrays in Python with "
                      "safetensors.numpy.save_file"},
    {"[Content_Types].xml", "a document of an office program"},
};
#define COUNT(table) (sizeof table / sizeof table[0])

static const char *archive(const fxi_bytes *file)
{
    enum { NAME_LENGTH = 26, NAME = 30 }; /* offsets in the header of the first file */
    if (file->size < NAME || memcmp(file->data, "PK\3\4", 4) != 0)
        return NULL;
    const size_t n = file->data[NAME_LENGTH] + 256u * file->data[NAME_LENGTH + 1];
    for (size_t i = 0; i < COUNT(archives) && n <= file->size - NAME; i++) {
        const size_t end = strlen(archives[i].end);
        if (n >= end && memcmp(file->data + NAME + n - end, archives[i].end, end) == 0)
            return archives[i].is;
    }
    return NULL;
}

const char *fxi_other_file(const fxi_bytes *file, const fxi_format *format)
{
    if (file->size == 0)
        return "the file is empty";
    const char *is = archive(file);
    for (size_t i = 0; !is && !format && i < COUNT(others); i++)
        if (file->size >= others[i].size &&
            memcmp(file->data, others[i].start, others[i].size) == 0)
            is = others[i].is;
    return is;
}
