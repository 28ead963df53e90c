# Libraries of one header that a build may lack.

# trireme_find_optional(NAME HEADER LIBRARY WITHOUT): looks for them unless TRIREME_WITH_<NAME> is off.
# TRIREME_<NAME>_SUMMARY becomes "on" or says what is missing.
function(trireme_find_optional name header library without)
  set(summary "off")
  if(TRIREME_WITH_${name})
    find_path(TRIREME_${name}_INCLUDE ${header})
    find_library(TRIREME_${name}_LIBRARY ${library})
    set(summary "not found (apt-get install ${without}")
    if(TRIREME_${name}_INCLUDE AND TRIREME_${name}_LIBRARY)
      set(summary "on")
    endif()
  endif()
  set(TRIREME_${name}_SUMMARY "${summary}" CACHE INTERNAL "")
endfunction()

# trireme_use_optional(LAYER NAME): compiles the layer with TRIREME_HAVE_<NAME> if it was found.
function(trireme_use_optional layer name)
  if(NOT TRIREME_${name}_SUMMARY STREQUAL "on")
    return()
  endif()
  target_include_directories(trireme_${layer} SYSTEM PRIVATE "${TRIREME_${name}_INCLUDE}")
  target_compile_definitions(trireme_${layer} PRIVATE TRIREME_HAVE_${name})
  target_link_libraries(trireme_${layer} PRIVATE "${TRIREME_${name}_LIBRARY}")
endfunction()
