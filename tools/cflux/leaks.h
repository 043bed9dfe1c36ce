/* leaks.h: finds inputs that contain the answer. */
#ifndef CFLUX_TOOL_LEAKS_H
#define CFLUX_TOOL_LEAKS_H

#include "training_data.h"

/* Warns if a feature of the training part of a table determines the target: its correlation with a
 * number is 1 or −1, or each class has its own value. Fewer than 20 observations are not examined.
 */
void warn_of_leaks(const problem *p, const training_data *d);

#endif
