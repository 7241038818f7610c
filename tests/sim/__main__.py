import sys,time
from .run import simulate
t0=time.perf_counter(); ex=0; n=0
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    t=time.perf_counter()
    o=simulate(seed); n+=1; ex+=o.excused
    if o.violation or time.perf_counter()-t>5:
        print(seed, round(time.perf_counter() - t, 2), (o.violation or "ok")[:300], len(o.events), o.excused, flush=True)
print(n, "seeds", ex, "excused", (time.perf_counter()-t0)/n, "s each")
