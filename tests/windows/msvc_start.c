/* msvc_start.c: takes the place of the code in Microsoft's C library that calls main. */
__declspec(dllimport) __declspec(noreturn) void __stdcall ExitProcess(unsigned int status);
int main(void);
void mainCRTStartup(void);

int _fltused = 0x9875; /* files with floating-point numbers refer to it */

void mainCRTStartup(void)
{
    ExitProcess((unsigned int)main());
}
