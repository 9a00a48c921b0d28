import sys, time
sys.path.insert(0, "python")
import torch
from fuseblock._capi import Plan, type_text
SHAPES = [(2,320,64,64,32),(2,320,128,128,32),(1,512,256,256,32),(1,128,1024,1024,32),(1,128,20,256,256,32),(1,512,16,180,320,32),(64,256,56,56,32),(2,32,128,128,128,8)]
flush = torch.empty(512*1024*1024//4, dtype=torch.int32, device="cuda")
def timed(f, n=12):
    f(); f(); torch.cuda.synchronize()
    times=[]
    for _ in range(n):
        flush.zero_()
        a=torch.cuda.Event(enable_timing=True); b=torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(200000)
        a.record(); f(); b.record(); torch.cuda.synchronize()
        times.append(a.elapsed_time(b))
    times.sort(); return times[len(times)//2]
def check(name, got, ref, peer):
    e=(got.double()-ref).abs().max().item(); p=(peer.double()-ref).abs().max().item(); m=ref.abs().max().item()
    return f"{name}: err {e:.2e} torch {p:.2e} max {m:.2e}" + ("" if e <= 2*p+4*m*torch.finfo(peer.dtype).eps else "  <<<<<< BAD")
def small(dts=(torch.float32, torch.bfloat16), shapes=(((2,6,5,7),3),((3,15,7,11),5),((4,8,13,29,29),4),((2,64,33,64),32))):
    import torch.nn.functional as F
    for dt in dts:
        for shape, g in shapes:
            x=(torch.randn(shape,device="cuda",dtype=torch.float64)*2+1).to(dt); C=shape[1]
            w=torch.randn(C,device="cuda",dtype=torch.float64).to(dt); b=torch.randn(C,device="cuda",dtype=torch.float64).to(dt)
            gy=torch.randn(shape,device="cuda",dtype=torch.float64).to(dt)
            plan=Plan.make(f"group_norm({g}) | silu", type_text(x), device="cuda")
            fw,bw=plan.for_training()
            o=fw.run({"x":x,"group_norm.weight":w,"group_norm.bias":b})
            o2=fw.run({"x":x,"group_norm.weight":w,"group_norm.bias":b})
            saved={k:v for k,v in o.items()}
            ins={"x":x,"group_norm.weight":w,"group_norm.bias":b,"d_silu":gy,**saved}
            gr=bw.run(ins)
            def torch_run(t):
                X=x.to(t).requires_grad_(); W=w.to(t).requires_grad_(); B=b.to(t).requires_grad_()
                y=F.silu(F.group_norm(X,g,W,B)); y.backward(gy.to(t)); return [y.detach(),X.grad,W.grad,B.grad]
            ref=torch_run(torch.float64); peer=torch_run(dt)
            outs=[o["silu"],gr["d_x"],gr["d_group_norm.weight"],gr["d_group_norm.bias"]]
            for n,a,r,p in zip(("y","dx","dw","db"),outs,ref,peer):
                line=check(f"{dt} {shape} {n}",a,r,p)
                if "BAD" in line or n=="y": print(line)
            assert all(torch.equal(o[k],o2[k]) for k in o)
            # strided
            xs=torch.empty((*shape[:-1],shape[-1]*2),device="cuda",dtype=dt)[...,::2]; xs.copy_(x)
            o3=plan.run({"x":xs,"group_norm.weight":w,"group_norm.bias":b})
            print(check("   strided", o3["silu"],ref[0],peer[0]))
def tail():
    x=torch.rand(1024,16,13,29,29,device="cuda")*4-2
    w=torch.randn(16,device="cuda"); b=torch.randn(16,device="cuda")
    plan=Plan.make("hardswish | group_norm(4) | mean(d,h,w)", type_text(x), device="cuda")
    ins={"x":x,"group_norm.weight":w,"group_norm.bias":b}
    call=plan.bind(ins); call()
    import torch.nn.functional as F
    def f(t,n=64): return F.group_norm(F.hardswish(x[:n].to(t)),4,w.to(t),b.to(t)).mean((2,3,4))
    print(check("tail fwd", call.outputs["mean"][:64], f(torch.float64), f(torch.float32)))
    t=timed(call); fl=x.nbytes/4.23e12*1e3
    print(f"tail forward {t:.4f} ms, floor {fl:.4f}, x{t/fl:.2f}")
    bw=plan.backward(); d=torch.randn(1024,16,device="cuda")
    bc=bw.bind({**ins,"d_mean":d}); bc(); t=timed(bc); fl*=2
    X=x[:64].double().requires_grad_(); y=F.group_norm(F.hardswish(X),4,w.double(),b.double()).mean((2,3,4)); y.backward(d[:64].double())
    Y=x[:64].clone().requires_grad_(); y=F.group_norm(F.hardswish(Y),4,w,b).mean((2,3,4)); y.backward(d[:64])
    print(check("tail bwd dx", bc.outputs["d_x"][:64], X.grad, Y.grad))
    print(f"tail backward {t:.4f} ms, floor {fl:.4f}, x{t/fl:.2f}")
def norms(layouts=("nchw",)):
    import torch.nn.functional as F
    for *shape,g in SHAPES:
        x=torch.randn(shape,device="cuda",dtype=torch.bfloat16); C=shape[1]
        w=torch.randn(C,device="cuda").bfloat16(); b=torch.randn(C,device="cuda").bfloat16()
        plan=Plan.make(f"group_norm({g}) | silu", type_text(x), device="cuda")
        ins={"x":x,"group_norm.weight":w,"group_norm.bias":b}
        call=plan.bind(ins); call(); torch.cuda.synchronize()
        small_=x.numel()<3e8
        msg=""
        if small_:
            ref=F.silu(F.group_norm(x.float(),g,w.float(),b.float())); peer=F.silu(F.group_norm(x,g,w,b))
            msg=check("",call.outputs["silu"],ref.double(),peer); del ref
        t=timed(call); fl=2*x.nbytes/4.23e12*1e3
        fw,bw=plan.for_training(); fc=fw.bind(ins); fc(); gy=torch.randn_like(x)
        bc=bw.bind({**ins,**fc.outputs,"d_silu":gy}); tb=timed(bc); tf=timed(fc)
        print(f"{shape} fwd {t:.4f} floor {fl:.4f} x{t/fl:.2f} | train fwd {tf:.4f} bwd {tb:.4f} x{tb/(fl*1.5):.2f} {msg}", flush=True)
def one(shape=(1,128,1024,1024), g=32):
    x=torch.randn(shape,device="cuda",dtype=torch.bfloat16); C=shape[1]
    w=torch.randn(C,device="cuda").bfloat16(); b=torch.randn(C,device="cuda").bfloat16()
    plan=Plan.make(f"group_norm({g}) | silu", type_text(x), device="cuda")
    call=plan.bind({"x":x,"group_norm.weight":w,"group_norm.bias":b})
    for _ in range(3): call()
    torch.cuda.synchronize()
def explore():
    import os
    import torch.nn.functional as F
    for *shape,g in [SHAPES[int(i)] for i in os.environ.get('WHICH','0,2,3,6').split(',')]:
        x=torch.randn(shape,device="cuda",dtype=torch.bfloat16); C=shape[1]
        w=torch.randn(C,device="cuda").bfloat16(); b=torch.randn(C,device="cuda").bfloat16()
        ins={"x":x,"group_norm.weight":w,"group_norm.bias":b}; fl=2*x.nbytes/4.23e12*1e3
        for v in os.environ["VARIANTS"].split(";"):
            os.environ["FB_ROWS"]=v
            try:
                plan=Plan.make(f"group_norm({g}) | silu", type_text(x), device="cuda")
                call=plan.bind(ins); call(); torch.cuda.synchronize(); t=timed(call,8)
                print(f"{shape} [{v}] fwd {t:.4f} x{t/fl:.2f}", flush=True)
            except Exception as e: print(shape, v, e)
def copy():
    x=torch.randn(1,128,1024,1024,device="cuda",dtype=torch.bfloat16); y=torch.empty_like(x)
    t=timed(lambda: y.copy_(x)); print("copy", t, 2*x.nbytes/t/1e9, "TB/s")
if __name__=="__main__":
    print(torch.cuda.get_device_name(), torch.__version__)
    for part in sys.argv[1:]:
        s=time.time()
        try: globals()[part]()
        except Exception as e:
            import traceback; traceback.print_exc()
        print(part, f"{time.time()-s:.1f} s", flush=True)
