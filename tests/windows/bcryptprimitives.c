/* The one function of bcryptprimitives.dll that a Rust program needs, for a Wine that has no such
 * library. Laid beside the tests by .ci/elsewhere.sh; never a part of foster. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
    return SystemFunction036(buffer, (ULONG)length);
}
