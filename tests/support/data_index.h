/* data_index.h: the JSON files that say what recorded data hold. */
#ifndef CFLUX_TEST_DATA_INDEX_H
#define CFLUX_TEST_DATA_INDEX_H

#include <cjson/cJSON.h>

/* The parsed file "FOLDER/rest" of the recorded data; NULL without it. The caller's. */
cJSON *data_index(const char *rest);

#endif
