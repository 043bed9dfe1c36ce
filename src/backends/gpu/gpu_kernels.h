/* gpu_kernels.h: the texts of kernels/ as strings, made at build time (embed_kernels.cmake).
 * kernels/prelude.cl describes their form; fxi_gpu_say_part appends them to a kernel. Internal. */
#ifndef CFLUX_GPU_KERNELS_H
#define CFLUX_GPU_KERNELS_H

/* opencl.cl */
extern const char fxi_gpu_text_opencl[];
/* cuda.cl */
extern const char fxi_gpu_text_cuda_and_hip[];
extern const char fxi_gpu_text_cuda[];
/* hip.cl */
extern const char fxi_gpu_text_hip[];
/* metal.cl */
extern const char fxi_gpu_text_metal[];
extern const char fxi_gpu_text_metal_functions[];
/* host.cl */
extern const char fxi_gpu_text_host[];
/* prelude.cl */
extern const char fxi_gpu_text_common[];
extern const char fxi_gpu_text_arithmetic[];
/* map.cl */
extern const char fxi_gpu_text_elementwise[];
extern const char fxi_gpu_text_elementwise_vectors[];
extern const char fxi_gpu_text_elementwise_apart[];
extern const char fxi_gpu_text_elementwise_tiles[];
extern const char fxi_gpu_text_elementwise_fill[];
extern const char fxi_gpu_text_several[];
extern const char fxi_gpu_text_segments_choice[];
extern const char fxi_gpu_text_segments_table[];
extern const char fxi_gpu_text_segments_each[];
extern const char fxi_gpu_text_segments_vectors[];
extern const char fxi_gpu_text_iota[];
extern const char fxi_gpu_text_philox[];
extern const char fxi_gpu_text_random[];
/* gather.cl */
extern const char fxi_gpu_text_check_indices[];
extern const char fxi_gpu_text_gather[];
extern const char fxi_gpu_text_gather_vectors[];
/* attention.cl */
extern const char fxi_gpu_text_attention_functions[];
extern const char fxi_gpu_text_attention[];
extern const char fxi_gpu_text_attention_forward[];
extern const char fxi_gpu_text_attention_gradient[];
extern const char fxi_gpu_text_attention_query[];
extern const char fxi_gpu_text_attention_key_value[];
/* copy.cl */
extern const char fxi_gpu_text_copy[];
extern const char fxi_gpu_text_copy_matrix[];
extern const char fxi_gpu_text_transpose[];
/* fold.cl */
extern const char fxi_gpu_text_fold_begin[];
extern const char fxi_gpu_text_fold_sum_reals[];
extern const char fxi_gpu_text_fold_product_reals[];
extern const char fxi_gpu_text_fold_sum_integers[];
extern const char fxi_gpu_text_fold_product_integers[];
extern const char fxi_gpu_text_fold_extreme[];
extern const char fxi_gpu_text_fold_deviations[];
extern const char fxi_gpu_text_fold_index[];
extern const char fxi_gpu_text_fold_end[];
extern const char fxi_gpu_text_lanes[];
extern const char fxi_gpu_text_tree[];
extern const char fxi_gpu_text_fold_from[];
extern const char fxi_gpu_text_tree_of_warps[];
/* reduce.cl */
extern const char fxi_gpu_text_reduce[];
extern const char fxi_gpu_text_reduce_columns[];
extern const char fxi_gpu_text_reduce_finish[];
extern const char fxi_gpu_text_reductions[];
/* repair.cl */
extern const char fxi_gpu_text_repair_look[];
extern const char fxi_gpu_text_repair_weights[];
/* scan.cl */
extern const char fxi_gpu_text_scan[];
/* row.cl */
extern const char fxi_gpu_text_rows[];
extern const char fxi_gpu_text_rows_division[];
extern const char fxi_gpu_text_rows_loads[];
extern const char fxi_gpu_text_rows_loads_whole[];
extern const char fxi_gpu_text_rows_stores[];
extern const char fxi_gpu_text_rows_stores_whole[];
extern const char fxi_gpu_text_rows_program[];
extern const char fxi_gpu_text_rows_take_deviations[];
extern const char fxi_gpu_text_rows_piece[];
extern const char fxi_gpu_text_rows_found[];
/* scatter.cl */
extern const char fxi_gpu_text_scatter_clear[];
extern const char fxi_gpu_text_scatter_fold[];
extern const char fxi_gpu_text_scatter[];
extern const char fxi_gpu_text_scatter_vectors[];
extern const char fxi_gpu_text_scatter_narrow[];
/* matmul.cl */
extern const char fxi_gpu_text_matmul[];
extern const char fxi_gpu_text_matmul_serial[];
extern const char fxi_gpu_text_matmul_tiles[];
extern const char fxi_gpu_text_matmul_end[];
/* matrix.cl */
extern const char fxi_gpu_text_matrix[];
extern const char fxi_gpu_text_matrix_async[];
extern const char fxi_gpu_text_matrix_end[];
/* slices.cl */
extern const char fxi_gpu_text_slices[];
/* reverse.cl */
extern const char fxi_gpu_text_reverse[];
/* conv.cl */
extern const char fxi_gpu_text_conv[];
extern const char fxi_gpu_text_conv_axis[];
extern const char fxi_gpu_text_conv_axis_of_phase[];
extern const char fxi_gpu_text_conv_row[];
extern const char fxi_gpu_text_conv_term[];
extern const char fxi_gpu_text_conv_out[];
/* conv_tiles.cl */
extern const char fxi_gpu_text_conv_tiles[];
extern const char fxi_gpu_text_conv_tiles_vectors[];
/* pool.cl */
extern const char fxi_gpu_text_pool_definitions[];
extern const char fxi_gpu_text_pool_max[];
extern const char fxi_gpu_text_pool_mean[];
extern const char fxi_gpu_text_pool_mean_grad[];
extern const char fxi_gpu_text_pool_max_grad[];
extern const char fxi_gpu_text_pool_pick[];
extern const char fxi_gpu_text_pool_tap[];
extern const char fxi_gpu_text_pool_item[];
extern const char fxi_gpu_text_pool_over_windows[];
extern const char fxi_gpu_text_pool_over_positions[];
extern const char fxi_gpu_text_pool_tiles[];

#endif
