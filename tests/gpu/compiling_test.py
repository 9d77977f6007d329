"""What XLA cannot compile of recurrent layers where there are GPUs, on a pretended one."""

import json


def test_xla_gets_no_kernel_of_cudnn_which_it_cannot_compile(run_on_gpus):
    code, output = run_on_gpus(1, "-m", "tests.gpu.compiling_worker")
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert code == 0 and lines, output
    told = json.loads(lines[-1])
    assert "CudnnRNNV3" in told["as Keras has it"]
    assert "CudnnRNNV3" not in told["compiled"]
    assert "use_cudnn=False" in told["compiled, its variables alone"]
