// Templates of the standard library whose functions are not inlined, compiled with optimisation for
// programs that are not (OctetTargets.cmake).
#include <cstdint>
#include <random>
#include <vector>

template class std::vector<char>;
template class std::vector<double>;
template class std::vector<float>;
template class std::vector<int8_t>;
template class std::vector<int32_t>;
template class std::vector<int64_t>;
template class std::vector<uint8_t>;
template class std::vector<uint16_t>;
template class std::vector<uint32_t>;
template class std::vector<uint64_t>;
template class std::mersenne_twister_engine<uint_fast32_t, 32, 624, 397, 31, 0x9908b0dfUL, 11,
                                            0xffffffffUL, 7, 0x9d2c5680UL, 15, 0xefc60000UL, 18,
                                            1812433253UL>;  // std::mt19937
