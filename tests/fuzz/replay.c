/* Runs a fuzz target over the files of the folders given as arguments, once each: how the corpora
 * are tested by a compiler without libFuzzer. Every input is a block of its own, so that a
 * sanitizer sees a read past its end. */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *const in = fopen(path, "rb");
    if (!in || fseek(in, 0, SEEK_END) != 0) {
        perror(path);
        return 1;
    }
    const long size = ftell(in);
    rewind(in);
    uint8_t *const data = malloc(size > 0 ? (size_t)size : 1);
    if (!data || fread(data, 1, (size_t)size, in) != (size_t)size) {
        perror(path);
        return 1;
    }
    fclose(in);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++) {
        struct dirent **names = NULL;
        const int n_name = scandir(argv[i], &names, NULL, alphasort);
        if (n_name < 0) {
            perror(argv[i]);
            return 1;
        }
        for (int k = 0; k < n_name; k++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], names[k]->d_name);
            if (names[k]->d_name[0] != '.') {
                if (run_file(path) != 0)
                    return 1;
                n++;
            }
            free(names[k]);
        }
        free(names);
    }
    printf("%d inputs\n", n);
    return n > 0 ? 0 : 1;
}
