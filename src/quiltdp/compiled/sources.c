/* What this library was made of: compared with the sources beside it before it is used. */

const char *qd_sources(void) { return QD_SOURCES; }
