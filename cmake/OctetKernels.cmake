# For this project and, installed beside octetConfig.cmake, for those of its users.

# octet_mark_kernels(<file.hip>...): marks files with kernels, of the current folder, for the
# platform's compiler. The language ${OCTET_KERNEL_LANGUAGE} must be enabled.
function(octet_mark_kernels)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE ${OCTET_KERNEL_LANGUAGE}
                              COMPILE_OPTIONS "${OCTET_KERNEL_OPTIONS}")
endfunction()
