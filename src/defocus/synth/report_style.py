"""How the report of a data set looks: its style sheet and the few lines of script of its viewer."""

STYLE = """
:root{--paper:#fbfaf8;--card:#fff;--ink:#1d1c1a;--soft:#6c6963;--line:#e4e1db;--a:#0072b2;--b:#d55e00;--c:#009e73;
--s0:#0072b2;--s1:#e69f00;--s2:#009e73;--s3:#cc79a7;--s4:#56b4e9;--s5:#d55e00;--s6:#8a8a8a;--s7:#b9a800;
--shadow:0 1px 2px rgba(0,0,0,.05),0 4px 16px rgba(0,0,0,.05)}
@media (prefers-color-scheme:dark){:root{--paper:#161617;--card:#1f1f21;--ink:#ecebe8;--soft:#9d9a94;--line:#333336;
--a:#4ea8dc;--b:#f08c45;--c:#3fc79a;--s0:#4ea8dc;--s1:#f0b840;--s2:#3fc79a;--s3:#e09cc4;--s4:#8fd0f5;--s5:#f08c45;
--s6:#a5a5a5;--s7:#d9cb3a;--shadow:0 1px 2px rgba(0,0,0,.4)}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 ui-sans-serif,system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1480px;margin:0 auto;padding:56px 32px 96px}
.kicker{margin:0;color:var(--soft);font-size:13px;letter-spacing:.09em;text-transform:uppercase}
h1{margin:4px 0 6px;font-size:40px;line-height:1.1;letter-spacing:-.022em;font-weight:650;overflow-wrap:anywhere}
.lead{margin:0;color:var(--soft);font-size:18px;max-width:70ch}
h2{margin:64px 0 4px;font-size:24px;letter-spacing:-.012em;font-weight:620}
h2+p{margin:0 0 20px;color:var(--soft);max-width:75ch}
h3{margin:0 0 8px;font-size:15px;font-weight:600}
h3 small{font-weight:400;color:var(--soft);font-size:13px;margin-left:6px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:1px;margin:32px 0 0;
background:var(--card);border:1px solid var(--line);border-radius:12px;overflow:hidden}
.tiles div{box-shadow:0 0 0 1px var(--line);padding:16px 20px}
.tiles b{display:block;font-size:25px;line-height:1.25;font-weight:600;letter-spacing:-.02em}
.tiles span{color:var(--soft);font-size:13.5px}
.sheet{display:grid;grid-template-columns:repeat(auto-fill,minmax(330px,1fr));gap:20px 18px}
.pair{margin:0;cursor:zoom-in;min-width:0}
.pair .two{display:grid;grid-template-columns:1fr 1fr;gap:2px;border-radius:8px;overflow:hidden;
box-shadow:var(--shadow);background:var(--line)}
.pair img{display:block;width:100%;height:auto;aspect-ratio:1;object-fit:cover}
.pair:focus-visible{outline:3px solid var(--a);outline-offset:3px;border-radius:8px}
.pair .cap{margin-top:7px;font-size:13px;line-height:1.4}
.pair .cap span{display:block;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.pair .cap span:last-child{color:var(--soft)}
.pair dl{display:none}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(390px,1fr));gap:18px}
.box{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 20px;min-width:0}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:11.5px;fill:var(--soft);text-anchor:middle}
svg .end{text-anchor:end} svg .label{font-size:12.5px;fill:var(--ink)}
svg .grid{stroke:var(--line)} svg .axis{stroke:var(--soft);stroke-width:1}
svg .a{fill:var(--a)} svg .b{fill:var(--b)} svg .c{fill:var(--c)}
.bars{columns:400px;column-gap:40px}
.bar{break-inside:avoid;display:grid;grid-template-columns:minmax(0,15em) 1fr 4.5em;gap:12px;align-items:center;
font-size:13.5px;min-width:0}
.bar .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.bar .count{text-align:right;color:var(--soft)}
.track i{display:block;height:10px;border-radius:2px;min-width:2px}
i.a{background:var(--a)} i.b{background:var(--b)} i.c{background:var(--c)}
i.s0{background:var(--s0)} i.s1{background:var(--s1)} i.s2{background:var(--s2)} i.s3{background:var(--s3)}
i.s4{background:var(--s4)} i.s5{background:var(--s5)} i.s6{background:var(--s6)} i.s7{background:var(--s7)}
.shares{display:flex;height:14px;border-radius:4px;overflow:hidden;gap:1px;background:var(--line)}
.shares i{display:block;height:100%}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;margin-top:8px;font-size:13px;color:var(--soft)}
.key i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;font-weight:500;color:var(--soft);font-size:13px;padding:0 16px 6px 0;white-space:nowrap}
td{border-top:1px solid var(--line);padding:8px 16px 8px 0;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap} td:last-child,th:last-child{padding-right:0}
.none{color:var(--soft)}
ul{padding-left:1.15em;max-width:90ch;margin:0} li{margin:4px 0}
code,pre{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{overflow:auto;max-height:520px;margin:12px 0 0} summary{cursor:pointer}
.stack>*+*{margin-top:18px}
dialog{border:0;padding:0;max-width:min(1240px,96vw);max-height:96vh;width:100%;border-radius:14px;background:var(--card);
color:var(--ink);box-shadow:0 24px 80px rgba(0,0,0,.4);overflow:auto}
dialog::backdrop{background:rgba(10,10,12,.72)}
.view{display:grid;grid-template-columns:minmax(0,768px) minmax(260px,1fr)}
.stage{position:relative;background:#000;line-height:0;--x:50%}
.stage img{width:100%;height:auto;max-height:88vh;object-fit:contain}
.stage .over{position:absolute;inset:0;height:100%;clip-path:inset(0 0 0 var(--x))}
.stage::after{content:"";position:absolute;top:0;bottom:0;left:var(--x);width:1px;background:#fff;opacity:.8}
.stage em{position:absolute;bottom:10px;font-size:12px;line-height:1;font-style:normal;color:#fff;
background:rgba(0,0,0,.55);padding:5px 8px;border-radius:5px}
.stage em:first-of-type{left:10px} .stage em:last-of-type{right:10px}
.stage input{position:absolute;inset:0;width:100%;height:100%;margin:0;opacity:0;cursor:ew-resize}
.about{padding:22px 26px;min-width:0}
.about dl{display:grid;grid-template-columns:auto 1fr;gap:4px 16px;margin:12px 0 0;font-size:14px}
.about dt{color:var(--soft)} .about dd{margin:0;overflow-wrap:anywhere}
.about p{color:var(--soft);font-size:13px;margin:18px 0 0}
.close{float:right;border:0;background:none;color:var(--soft);font-size:22px;line-height:1;cursor:pointer;
padding:2px 6px}
footer{margin-top:72px;padding-top:16px;border-top:1px solid var(--line);color:var(--soft);font-size:13px}
@media (max-width:860px){main{padding:32px 16px}.view{grid-template-columns:1fr}h1{font-size:30px}
.charts{grid-template-columns:1fr}}
@media print{.pair{break-inside:avoid}body{background:#fff}}
"""

SCRIPT = """
const view=document.querySelector("dialog"),all=[...document.querySelectorAll(".pair")];
if(view&&all.length){let now=0;const [under,over]=view.querySelectorAll("img"),stage=view.querySelector(".stage"),
slide=view.querySelector("input"),wipe=()=>stage.style.setProperty("--x",slide.value+"%"),
show=n=>{now=(n+all.length)%all.length;const one=all[now],[a,b]=one.querySelectorAll("img");under.src=a.src;
over.src=b.src;view.querySelector("h3").textContent=one.dataset.id;
view.querySelector("dl").innerHTML=one.querySelector("dl").innerHTML};
all.forEach((one,n)=>{one.addEventListener("click",()=>{show(n);slide.value=50;wipe();view.showModal()});
one.addEventListener("keydown",e=>{if(e.key==="Enter")one.click()})});
slide.addEventListener("input",wipe);
stage.addEventListener("pointermove",e=>{const r=stage.getBoundingClientRect();
slide.value=100*(e.clientX-r.left)/r.width;wipe()});
view.addEventListener("click",e=>{if(e.target===view||e.target.className==="close")view.close()});
view.addEventListener("keydown",e=>{const step={ArrowLeft:-1,ArrowRight:1}[e.key];
if(step){e.preventDefault();show(now+step)}})}
"""
