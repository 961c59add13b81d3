import asyncio, random, os
import pytest
from edge.live_server import *
from edge.many_servers import *
from edge.many_servers import play
pytestmark = pytest.mark.store
SECONDS = float(os.environ.get("STORM_S", "8"))
def test_storm():
    seed = int(os.environ.get("STORM_SEED", random.randrange(10**6)))
    rnd = random.Random(seed); print("seed", seed)
    async def scenario(company):
        await company.until_met()
        over = asyncio.Event()
        up = set("ABC")
        def pick(): return rnd.choice(sorted(up)) 
        allnodes = []
        held = {}
        async def node_life(name):
            running = {}   # (job) -> message
            done = {}
            while not over.is_set():
                at = pick()
                try:
                    node = await company[at].node(name, max_jobs=4, sends_acks=True)
                except Exception as e:
                    await asyncio.sleep(0.05); continue
                allnodes.append(node)
                seen = 0
                try:
                    await node.beat(running=[{"job_id": j, "attempt_id": a} for (j, a) in running])
                    for key, m in list(done.items()):
                        await node.answer(m, f"text {m['utterance_index']}")
                    while not node.ws.closed and not (over.is_set()):
                        while seen < len(node.heard):
                            m = node.heard[seen]; seen += 1
                            if m["type"] == "job_assign":
                                key = (m["job_id"], m["attempt_id"])
                                if key in running or key in done: continue
                                running[key] = m
                                await node.take(m)
                            elif m["type"] == "job_result_ack":
                                done.pop((m["job_id"], m["attempt_id"]), None)
                            elif m["type"] == "job_cancel":
                                running.pop((m["job_id"], m.get("attempt_id")), None)
                        for key, m in list(running.items()):
                            if rnd.random() < 0.3:
                                running.pop(key); done[key] = m
                                await node.answer(m, f"text {m['utterance_index']}")
                        if rnd.random() < 0.1:
                            await node.beat(running=[{"job_id": j, "attempt_id": a} for (j, a) in (*running, *done)])
                        await asyncio.sleep(0.01)
                except (ConnectionError, AssertionError) as e:
                    pass
                await asyncio.sleep(0.02)
        async def come_back(t):
            while True:
                try:
                    await t.come_back(pick()); return
                except (aiohttp.ClientError, ConnectionError, AssertionError, KeyError) as e:
                    if "resume_rejected" in str(e): raise
                    await asyncio.sleep(0.03)
        async def speak(t, n):
            number = 0
            while not over.is_set() or number % 3:
                number += 1
                try:
                    await t.say(bytes([number % 251]) * 60, is_final=number % 3 == 0)
                except ConnectionError: pass
                if t.socket.ws.closed or rnd.random() < 0.01:
                    await come_back(t)
                await asyncio.sleep(0.02)
            for _ in range(600):
                if t.socket.ws.closed: await come_back(t)
                if len({i for i, r in t.outcomes()}) and spoken(allnodes, t.id) == b"".join(a for a, _ in t.said):
                    last = max(m["utterance_index"] for m in t.heard if m["type"]=="utterance_accepted")
                    if len(t.outcomes()) > last: return
                await asyncio.sleep(0.02)
        async def nemesis():
            kills = 0
            end = asyncio.get_running_loop().time() + SECONDS
            while asyncio.get_running_loop().time() < end:
                await asyncio.sleep(rnd.uniform(0.3, 0.9))
                if len(up) > 1:
                    victim = pick(); up.discard(victim)
                    how = rnd.random()
                    if how < 0.6: await company[victim].crash()
                    elif how < 0.8: 
                        await company[victim].fall_silent(); await asyncio.sleep(rnd.uniform(0.3,1.2)); await company[victim].crash()
                    else: await company[victim].drain()
                    kills += 1
                    await asyncio.sleep(rnd.uniform(0, 0.8))
                    await company.start(victim); up.add(victim)
            over.set()
            print("kills", kills)
        ts = [await Traveller.at(company, rnd.choice("ABC")) for _ in range(6)]
        nodes = [asyncio.create_task(node_life(f"n{i}")) for i in range(3)]
        sp = [asyncio.create_task(speak(t, i)) for i, t in enumerate(ts)]
        nm = asyncio.create_task(nemesis())
        # nodes go on until speakers are done
        await nm
        over2 = over
        over.clear(); stop = True
        async def fin():
            over.set()
        # keep nodes alive: restart them
        over.set(); await asyncio.gather(*nodes)
        class Never:
            def is_set(self): return False
        nonlocal_over = Never()
        more = []
        async def node_more(name):
            node = await company[pick()].node(name, max_jobs=8, boot_id="last")
            allnodes.append(node); node.work()
        for i in range(3): await node_more(f"n{i}")
        await asyncio.gather(*sp)
        bad = 0
        for t in ts:
            o = t.outcomes()
            said = b"".join(a for a, _ in t.said)
            heard = spoken(allnodes, t.id)
            idx = [i for i, _ in o]
            acc = max(m['utterance_index'] for m in t.heard if m['type']=='utterance_accepted')
            if heard != said or len(o) != acc + 1 or idx != list(range(len(idx))) or any(r != "ok" for _, r in o):
                bad += 1
                print("BAD", t.id, len(said), len(heard), [x for x in o if x[1] != "ok"], idx[-3:], len(o), [m for m in t.heard if m["type"] in ("gap","error","session_reset")][-4:])
                acc=[m for m in t.heard if m["type"]=="utterance_accepted"]
                print([ (m["utterance_index"],m["first_seq"],m["last_seq"]) for m in acc][-6:], len(t.said))
        print("utterances", sum(len(t.outcomes()) for t in ts), "resumes", sum(len(t.sockets)-1 for t in ts), "leases", company.leases())
        await asyncio.sleep(0.5)
        for key in company.ask("KEYS", company.key("leases", "*")):
            for l, s in zip(*[iter(company.ask("ZRANGE", key, 0, -1, "WITHSCORES"))]*2):
                jid = l.decode().split("|")[0]
                rec = company.ask("HMGET", company.key("job", jid), "state", "attempt", "node", "outcome", "due_at","acks")
                node = key.decode().rsplit(":",1)[1]
                nrec = company.ask("HMGET", company.key("node", node), "status", "instance", "boot", "conn", "orphans", "missing")
                now = int(company.ask("TIME")[0])*1000
                print("LEASE", key, l, "expires in", int(float(s))-now, rec, nrec, [ (m["type"], m.get("attempt_id"), m.get("status"), n.id) for n in allnodes for m in n.heard if m.get("job_id")==jid])
        assert not bad
    play(scenario, "ABC", server__drain_ms=1000, segmentation__pause_ms=5000, jobs__ack_ms=500)
