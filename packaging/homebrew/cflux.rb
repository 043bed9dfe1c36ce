# The formula builds from a Git repository of cflux that HOMEBREW_CFLUX_GIT names (docs/install.md). cflux has no page of its own on
# the web, so the home page is that of Flux.
class Cflux < Formula
  desc "Neural networks as plain C expressions"
  homepage "https://fluxml.ai"
  license "MIT"
  head ENV.fetch("HOMEBREW_CFLUX_GIT", "file:///HOMEBREW_CFLUX_GIT-is-not-set"), using: :git, branch: "main"

  depends_on "cmake" => :build
  depends_on "pkgconf" => :build
  depends_on "jpeg-turbo"
  depends_on "libpng"
  depends_on "mongo-c-driver"

  on_linux do
    depends_on "zlib-ng-compat"
  end

  def install
    system "cmake", "-S", ".", "-B", "build", "-DCFLUX_TESTS=OFF", "-DCFLUX_EXAMPLES=OFF", "-DCFLUX_BENCH=OFF",
           "-DCFLUX_MPI=OFF", "-DCFLUX_ONEDNN=OFF", "-DCFLUX_WERROR=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    (testpath/"test.c").write <<~C
      #include <cflux.h>
      int main(void)
      {
          printf("%g\\n", fx_item(fx_sum(fx_ones(3))));
          return fx_error_print(stderr);
      }
    C
    system ENV.cc, "test.c", "-I#{include}", "-L#{lib}", "-lcflux", "-o", "test"
    assert_equal "3\n", shell_output("./test")
    system bin/"cflux", "--version"
  end
end
