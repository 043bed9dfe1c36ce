/* data_index.h: reads the JSON files that describe recorded test data. */
#ifndef CFLUX_TEST_DATA_INDEX_H
#define CFLUX_TEST_DATA_INDEX_H

#include <cjson/cJSON.h>

/* The parsed file "FOLDER/rest" of the recorded data, owned by the caller; NULL if it does not
 * exist. */
cJSON *data_index(const char *rest);

#endif
